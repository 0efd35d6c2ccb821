"""
What the settings of the ports for health and metrics may be together, and of a certificate with its key.

Does not depend on where they are declared: `config` is.
"""

from neuron_scheduler.telemetry.errors import ConfigurationError


def require_pair(flags: str, *, cert_file: str, key_file: str) -> None:
    """
    Check that a certificate has a key, and a key a certificate; `flags` is the beginning of both flags.

    Raises:
        ConfigurationError: one of the two is missing.
    """
    if bool(cert_file) != bool(key_file):
        given, missing = ("cert", "private-key") if cert_file else ("private-key", "cert")
        raise ConfigurationError(f"{flags}-{given}-file needs {flags}-{missing}-file too")


def require_consistent(*, port: int, secure_port: int, cert_file: str, key_file: str, authorize_metrics: bool) -> None:
    """
    Check the settings of the endpoints; the arguments are the flags of these names, `--tls-` left out.

    Raises:
        ConfigurationError: two contradict each other.
    """
    require_pair("--tls", cert_file=cert_file, key_file=key_file)
    if cert_file and secure_port and secure_port == port:
        raise ConfigurationError(f"--port and --secure-port are both {port}: give them different ports")
    if authorize_metrics and not (secure_port and cert_file):
        raise ConfigurationError(
            "--authorize-metrics needs --secure-port above 0, --tls-cert-file and --tls-private-key-file:"
            " a token must not be sent without TLS"
        )


def require_reachable(*, answer_questions: bool, serve_page: bool, listens: bool) -> None:
    """
    Check the settings of what the endpoints show; `listens` says whether there is any port.

    Raises:
        ConfigurationError: something would be shown that nobody can reach, or that has nothing to show.
    """
    if serve_page and not answer_questions:
        raise ConfigurationError("--serve-page needs --answer-questions: the page shows these answers")
    if answer_questions and not listens:
        raise ConfigurationError(
            "--answer-questions needs --port above 0, or --secure-port above 0 with --tls-cert-file and"
            " --tls-private-key-file"
        )

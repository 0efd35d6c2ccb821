"""
Which values and combinations of settings are refused, in one sentence each.

What an old leader started last must have ended before the next one may begin: with the renew deadline, the timeout of a
write that only the leader may send stays below the lease duration. A function gets a `Config`, which imports this.
"""

from collections.abc import Sequence
from typing import Any, Final

import attrs

from neuron_scheduler.model.wording import camel
from neuron_scheduler.settings.profile_config import RESERVED, ProfileConfig, path_of
from neuron_scheduler.settings.setting import flag, settings_of
from neuron_scheduler.telemetry.errors import ConfigurationError

JITTER: Final = 1.2  # client-go's: a retry may take so many times its period
LONGEST_WRITE: Final = 4.0  # seconds; with the 10 s deadline below the 15 s of the Lease
SHORTEST_WRITE: Final = 0.5
_PART: Final = 0.8  # of the time between the deadline and the end of the Lease


def require_usable(config: Any, *, of_a_profile: Sequence[str]) -> None:
    """Raise ConfigurationError for a value out of range, or a contradiction; each profile has those `of_a_profile`."""
    for field in settings_of(type(config)):
        _require(field, config, flag(field.name))
    _require_profiles(config, of_a_profile)
    if config.pod_initial_backoff_seconds > config.pod_max_backoff_seconds:
        raise ConfigurationError(
            f"--pod-initial-backoff-seconds ({config.pod_initial_backoff_seconds:g}) is longer than"
            f" --pod-max-backoff-seconds ({config.pod_max_backoff_seconds:g})"
        )
    if config.leader_elect:
        _require_lease(
            lease=config.leader_elect_lease_duration,
            renew=config.leader_elect_renew_deadline,
            retry=config.leader_elect_retry_period,
        )
    _require_ports(config)
    _require_extender(config)


def _require(field: "attrs.Attribute[Any]", of: object, described: str) -> None:
    check = field.metadata["check"]
    if check is not None and (complaint := check(getattr(of, field.name))):
        raise ConfigurationError(f"{described} {complaint}")


def _require_profiles(config: Any, of_a_profile: Sequence[str]) -> None:
    names = [profile.scheduler_name for profile in config.profiles]
    if not names:
        raise ConfigurationError("there is no profile: name at least one scheduler")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"schedulerName {twice!r} has more than one profile; keep one of them")
    for profile in config.profiles:
        for name in of_a_profile:
            field = attrs.fields_dict(type(config))[name]
            _require(field, profile, f"{camel(name)} of {profile.scheduler_name!r}")
        _require_capacity_requests(profile, queue=config.queue)


def _require_capacity_requests(profile: ProfileConfig, *, queue: bool) -> None:
    name = profile.scheduler_name
    if name == RESERVED:
        raise ConfigurationError(f"schedulerName {RESERVED!r} is that of placeholders, which no scheduler places")
    if profile.capacity_requests is None:
        return
    for field in settings_of(type(profile.capacity_requests)):
        _require(field, profile.capacity_requests, f"profile {name!r}: capacityRequests.{path_of(field)}")
    if not queue:
        raise ConfigurationError(
            f"capacityRequests of {name!r} has no effect without a queue of our own: it is for pods that this"
            " scheduler places, not for kube-scheduler's; remove it"
        )


def write_timeout(*, lease: float, renew: float) -> float:
    """Return the seconds after which the outcome of a leader's write is unknown."""
    return min(LONGEST_WRITE, round(_PART * (lease - renew), 3))


def _require_lease(*, lease: float, renew: float, retry: float) -> None:
    duration, deadline = "--leader-elect-lease-duration", "--leader-elect-renew-deadline"
    if lease < 1 or lease % 1:
        raise ConfigurationError(f"{duration} is {lease:g}s; it must be whole seconds, 1s or more")
    if renew >= lease:
        raise ConfigurationError(f"{deadline} ({renew:g}s) must be below {duration} ({lease:g}s)")
    if retry <= 0 or renew <= JITTER * retry:
        raise ConfigurationError(
            f"--leader-elect-retry-period ({retry:g}s) must be above 0 and, times {JITTER}, below"
            f" {deadline} ({renew:g}s)"
        )
    if write_timeout(lease=lease, renew=renew) < SHORTEST_WRITE:
        raise ConfigurationError(
            f"{duration} ({lease:g}s) must exceed {deadline} ({renew:g}s) by {SHORTEST_WRITE / _PART:g}s or more, so"
            " that an old leader's last Binding has ended in time"
        )


def _require_pair(flags: str, *, cert_file: str, key_file: str) -> None:
    """Check that a certificate has a key, and a key a certificate; `flags` is the beginning of both flags."""
    if bool(cert_file) != bool(key_file):
        given, missing = ("cert", "private-key") if cert_file else ("private-key", "cert")
        raise ConfigurationError(f"{flags}-{given}-file needs {flags}-{missing}-file too")


def _require_ports(config: Any) -> None:
    _require_pair("--tls", cert_file=config.tls_cert_file, key_file=config.tls_private_key_file)
    if config.authorize_metrics and not config.serves_tls:
        raise ConfigurationError(
            "--authorize-metrics needs --secure-port above 0, --tls-cert-file and --tls-private-key-file:"
            " a token must not be sent without TLS"
        )
    if config.serve_page and not config.answer_questions:
        raise ConfigurationError("--serve-page needs --answer-questions: the page shows these answers")
    if config.answer_questions and not (config.port or config.serves_tls):
        raise ConfigurationError(
            "--answer-questions needs --port above 0, or --secure-port above 0 with --tls-cert-file and"
            " --tls-private-key-file"
        )


def _require_extender(config: Any) -> None:
    certificate = config.extender_tls_cert_file
    if not (config.queue or config.extender_bind_address):
        raise ConfigurationError("the command extender needs --extender-bind-address")
    _require_pair("--extender-tls", cert_file=certificate, key_file=config.extender_tls_private_key_file)
    if config.extender_client_ca_file and not certificate:
        raise ConfigurationError(
            "--extender-client-ca-file needs --extender-tls-cert-file: only TLS shows who the client is"
        )

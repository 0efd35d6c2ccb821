"""Settings have kube-scheduler's names and defaults, and contradictions are refused before the process starts."""

from typing import Any

import attrs
import pytest

from neuron_scheduler.settings.config import EXTENDER_ADDRESS, OF_A_PROFILE, Config
from neuron_scheduler.settings.profile_config import ProfileConfig
from neuron_scheduler.settings.setting import address_and_port, boolean, duration
from neuron_scheduler.telemetry.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15s", 15), ("1m30s", 90), ("500ms", 0.5), ("1.5h", 5400), (".5s", 0.5), ("0", 0), ("0s", 0), ("2us", 2e-6)],
)
def test_durations(text: str, seconds: float) -> None:
    """Go's durations are read."""
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "15", "s", "15 s", "-1s", "15s ", "1_0s", "1s30", "\u0661s", "1e3s", "0x1s"])
def test_no_durations(text: str) -> None:
    """Texts that Go refuses are refused, and so are negative times."""
    with pytest.raises(ValueError, match="is not a duration; write 15s"):
        duration(text)


def test_booleans() -> None:
    """Only Go's truth values are accepted."""
    assert [boolean(text) for text in ("true", "1", "T", "false", "0", "F")] == [True] * 3 + [False] * 3
    with pytest.raises(ValueError, match="neither true nor false"):
        boolean("yes")


def test_the_defaults_hold_together() -> None:
    """With the defaults, a Binding ends before another replica may take the Lease."""
    config = Config()
    assert config.bind_timeout == 4
    assert config.leader_elect_renew_deadline + config.bind_timeout < config.leader_elect_lease_duration
    assert (config.leader_elect_resource_namespace, config.leader_elect_resource_name) == (
        "kube-system",
        "my-scheduler",
    )
    assert not config.serves_tls


def test_a_short_lease_shortens_the_bind_timeout() -> None:
    """A Binding gets the time between deadline and expiry at most; without a Lease it gets its own limit."""
    short = Config(leader_elect_lease_duration=3, leader_elect_renew_deadline=2, leader_elect_retry_period=0.5)
    assert short.bind_timeout == 0.8
    assert Config(leader_elect=False, leader_elect_renew_deadline=99).bind_timeout == 4


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        pytest.param({"port": 70000}, "--port is 70000; it must be 0 to 65535", id="no such port"),
        pytest.param({"v": -1}, "--v is -1; it must be 0 to 10", id="verbosity"),
        pytest.param({"kube_api_qps": float("nan")}, "--kube-api-qps is nan", id="not a number"),
        pytest.param({"kube_api_burst": 0}, "--kube-api-burst is 0", id="no write ever"),
        pytest.param(
            {"pod_initial_backoff_seconds": 20.0},
            r"--pod-initial-backoff-seconds \(20\) is longer than --pod-max-backoff-seconds \(10\)",
            id="backoff shrinks",
        ),
        pytest.param({"scheduler_name": ""}, "--scheduler-name is ''; it must be a Kubernetes name", id="no name"),
        pytest.param({"leader_elect_resource_name": "a/b"}, "--leader-elect-resource-name is 'a/b'", id="a path"),
        pytest.param({"logging_format": "xml"}, "--logging-format is 'xml'; it must be text or json", id="format"),
        pytest.param({"port": 10**400}, "--port is 10{400}; it must be 0 to 65535", id="a number that is no float"),
        pytest.param({"leader_elect_lease_duration": 15.5}, "it must be whole seconds, 1s or more", id="half a second"),
        pytest.param(
            {"leader_elect_renew_deadline": 15.0},
            r"--leader-elect-renew-deadline \(15s\) must be below --leader-elect-lease-duration \(15s\)",
            id="deadline not below duration",
        ),
        pytest.param(
            {"leader_elect_retry_period": 8.5},
            r"--leader-elect-retry-period \(8.5s\) must be above 0 and, times 1.2, below",
            id="one retry and it is over",
        ),
        pytest.param({"leader_elect_retry_period": 0.0}, "must be above 0", id="retry without pause"),
        pytest.param(
            {"leader_elect_renew_deadline": 14.9},
            "must exceed --leader-elect-renew-deadline .* by 0.625s or more",
            id="no time left for a Binding",
        ),
        pytest.param({"tls_cert_file": "c"}, "--tls-cert-file needs --tls-private-key-file too", id="no key"),
        pytest.param(
            {"tls_private_key_file": "k"}, "--tls-private-key-file needs --tls-cert-file", id="no certificate"
        ),
        pytest.param(
            {"authorize_metrics": True},
            "--authorize-metrics needs --secure-port above 0, --tls-cert-file and --tls-private-key-file",
            id="a token without TLS",
        ),
        pytest.param(
            {"authorize_metrics": True, "tls_cert_file": "c", "tls_private_key_file": "k", "secure_port": 0},
            "--authorize-metrics needs --secure-port above 0",
            id="no port to ask for a token",
        ),
        pytest.param({"serve_page": True}, "--serve-page needs --answer-questions", id="a page without answers"),
        pytest.param(
            {"answer_questions": True, "port": 0}, "--answer-questions needs --port above 0, or", id="no port to ask at"
        ),
        pytest.param({"bind_address": ""}, "--bind-address is ''; it must be an IP address", id="no address"),
        pytest.param({"bind_address": "localhost"}, "--bind-address is 'localhost'; it must be an IP", id="a name"),
        pytest.param({"bind_address": "[::]"}, "must be an IP address without brackets", id="brackets"),
        pytest.param({"queue": False}, "the command extender needs --extender-bind-address", id="nothing to do"),
        pytest.param(
            {"extender_bind_address": ":12345", "extender_tls_cert_file": "c"},
            "--extender-tls-cert-file needs --extender-tls-private-key-file too",
            id="no key of the extender",
        ),
        pytest.param(
            {"extender_bind_address": ":12345", "extender_tls_private_key_file": "k"},
            "--extender-tls-private-key-file needs --extender-tls-cert-file too",
            id="no certificate of the extender",
        ),
        pytest.param(
            {"extender_bind_address": ":12345", "extender_client_ca_file": "a"},
            "--extender-client-ca-file needs --extender-tls-cert-file",
            id="clients without TLS",
        ),
    ],
)
def test_contradictions(settings: dict[str, Any], complaint: str) -> None:
    """Each impossible setting is one sentence that names the flag."""
    with pytest.raises(ConfigurationError, match=complaint):
        Config(**settings)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (EXTENDER_ADDRESS, ("0.0.0.0", 12345)),
        ("10.0.0.7:1", ("10.0.0.7", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("[::]:12345", ("::", 12345)),
    ],
)
def test_addresses_with_ports(text: str, read: tuple[str, int]) -> None:
    """An address is an IP address, IPv6 in brackets; without one it is all addresses."""
    assert address_and_port(text) == read
    assert Config(extender_bind_address=text).extender_bind_address == text


@pytest.mark.parametrize(
    "text", ["12345", "a:1", "10.0.0.7", "10.0.0.7:", ":0", ":65536", "::1:5", "[1.2.3.4]:5", ":\u0661"]
)
def test_no_addresses_with_ports(text: str) -> None:
    """The error says how to write it."""
    with pytest.raises(ConfigurationError, match=r"--extender-bind-address is .*; it must be ADDRESS:PORT, such as :1"):
        Config(extender_bind_address=text)


def test_the_defaults_of_a_profile_are_those_of_the_flags() -> None:
    """A profile that says nothing is served as a configuration without profiles is."""
    only = Config().profiles[0]
    assert ProfileConfig(scheduler_name=only.scheduler_name) == only
    assert set(OF_A_PROFILE) < set(attrs.fields_dict(ProfileConfig))

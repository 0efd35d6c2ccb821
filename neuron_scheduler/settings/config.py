"""
All settings of the process, their defaults, and what may not be combined.

A setting is declared once, here: `cli.py` makes the flags from these fields, `config_file.py` reads them from a file.
Only the composition root sees the whole `Config`; everything else is given the few values it needs. Refuses
contradictions when it is built, so that a process never starts half-configured, and reads no file and no environment:
`check_files` looks at what the settings name.
"""

import ipaddress
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

from neuron_scheduler.errors import ConfigurationError

BIND_TIMEOUT: Final = 4.0  # seconds; with the 10 s deadline below the 15 s of the Lease (a Binding must not outlive it)
SHORTEST_BIND_TIMEOUT: Final = 0.5
JITTER: Final = 1.2  # client-go's: a retry may take so many times its period
LOGGING_FORMATS: Final = ("text", "json")
UNKNOWN_ALLOCATIONS: Final = ("pessimistic", "count-only")
VOLUME_BIND_TIMEOUT: Final = 600.0
OF_A_PROFILE: Final = ("scheduler_name", "unknown_allocations", "volume_bind_timeout")
"""Flags that say how the pods of one scheduler name are served."""

_DURATION_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)


def duration(text: str) -> float:
    """
    Return the seconds of a Go duration (`15s`, `1m30s`, `500ms`); `0` needs no unit.

    Raises:
        ValueError: the text is no duration, or negative.
    """
    parts = _DURATION_PART.findall(text)
    if text != "0" and (not parts or "".join(number + unit for number, unit in parts) != text):
        raise ValueError(f"{text!r} is not a duration; write 15s, 1m30s or 500ms")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def boolean(text: str) -> bool:
    """
    Return what Go's `strconv.ParseBool` returns.

    Raises:
        ValueError: the text is neither true nor false.
    """
    if text in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if text in {"0", "f", "F", "false", "FALSE", "False"}:
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _setting(default: Any, text: str, *, parse: Callable[[str], Any] = str, metavar: str = "", shown: str = "") -> Any:
    """Declare a field that is also a flag; `text` is its help, `shown` the default there, if not the value itself."""
    return attrs.field(default=default, metadata={"help": text, "parse": parse, "metavar": metavar, "shown": shown})


@attrs.frozen(kw_only=True)
class ProfileConfig:
    """
    How the pods of one scheduler name are served.

    Attributes:
        scheduler_name: the pods' `spec.schedulerName`.
        preferences: names of the preferences, the most important first; None for the default order.
        unknown_allocations, volume_bind_timeout: as in `Config`.
    """

    scheduler_name: str
    preferences: tuple[str, ...] | None = None
    unknown_allocations: str = "pessimistic"
    volume_bind_timeout: float = VOLUME_BIND_TIMEOUT


def _only_profile(config: "Config") -> tuple[ProfileConfig, ...]:
    """Return the profile that the flags describe, for a configuration that lists none."""
    return (ProfileConfig(**{name: getattr(config, name) for name in OF_A_PROFILE}),)


@attrs.frozen(kw_only=True)
class Config:
    """
    The settings of `neuron-scheduler run`; each field but `profiles` is the flag of the same name.

    Durations are seconds. The defaults are kube-scheduler's unless the field's comment says why not.

    Attributes:
        profiles: all scheduler names that are served; the fields in `OF_A_PROFILE` describe the only one where none is
            listed.

    Raises:
        ConfigurationError: a value is out of range, or two contradict each other.
    """

    kubeconfig: str = _setting(
        "",
        "Path of a kubeconfig file.",
        metavar="FILE",
        shown="the service account in a pod, elsewhere $KUBECONFIG or ~/.kube/config",
    )
    master: str = _setting(
        "",
        "Address of the API server; overrides the one in --kubeconfig. Without --kubeconfig no credentials are sent.",
        metavar="URL",
    )
    # AWS's documentation and every pod written for it say my-scheduler.
    scheduler_name: str = _setting(
        "my-scheduler", "Schedule the pods whose spec.schedulerName is this.", metavar="NAME"
    )
    leader_elect: bool = _setting(
        True,
        "Hold a Lease before scheduling, so that one of several replicas is active. If false, run one replica only, and"
        " remove the admission policy on Bindings.",
        parse=boolean,
        metavar="BOOL",
    )
    leader_elect_lease_duration: float = _setting(
        15.0,
        "How long the other replicas wait before they take the Lease of a leader that does not renew it.",
        parse=duration,
        metavar="DURATION",
    )
    leader_elect_renew_deadline: float = _setting(
        10.0,
        "A leader that cannot renew the Lease for this long stops binding and exits.",
        parse=duration,
        metavar="DURATION",
    )
    leader_elect_retry_period: float = _setting(
        2.0,
        "How often the leader renews the Lease, and the pause between failed attempts to take it.",
        parse=duration,
        metavar="DURATION",
    )
    # The name AWS's my-scheduler uses, so that the old scheduler and this one exclude each other during a migration.
    leader_elect_resource_name: str = _setting("my-scheduler", "Name of the Lease.", metavar="NAME")
    leader_elect_resource_namespace: str = _setting("kube-system", "Namespace of the Lease.", metavar="NAME")
    bind_address: str = _setting(
        "0.0.0.0",  # noqa: S104 - probes come from the node
        "Address of the health and metrics endpoints; 0.0.0.0 or :: means all addresses, IPv4 and IPv6.",
        metavar="IP",
    )
    # kube-scheduler's plain port of old: probes and scrapers need no certificate, and nothing secret is served.
    port: int = _setting(
        10251, "Port of /healthz, /livez, /readyz, /metrics without TLS; 0: off.", parse=int, metavar="N"
    )
    secure_port: int = _setting(
        10259, "Port of the same endpoints with TLS, if certificate and key are given; 0: off.", parse=int, metavar="N"
    )
    tls_cert_file: str = _setting("", "Certificate (and chain) for --secure-port, PEM.", metavar="FILE")
    tls_private_key_file: str = _setting("", "Private key for --secure-port, PEM.", metavar="FILE")
    # kube-scheduler always does; it has no plain port.
    authorize_metrics: bool = _setting(
        False,
        "Serve /metrics on --secure-port only, to clients whose bearer token gives them the right to get that path"
        " (TokenReview and SubjectAccessReview). Health needs no token.",
        parse=boolean,
        metavar="BOOL",
    )
    # 2 shows one line per outcome of an attempt, as AWS's manifests for kube-scheduler ask for.
    v: int = _setting(
        2,
        "Verbosity of the log: 2 outcomes, 3 attempts and nodes, 4 filters and allocations, 6 usage maps.",
        parse=int,
        metavar="N",
    )
    logging_format: str = _setting("text", "text (klog) or json.", metavar="FORMAT")
    # kube-scheduler's 50 would bound us to 50 pods/s; the API server's own priority and fairness protects it.
    kube_api_qps: float = _setting(
        0.0, "Limit on writes to the API server per second; 0: none.", parse=float, metavar="N"
    )
    kube_api_burst: int = _setting(
        100, "Writes allowed at once under --kube-api-qps; without that limit it has no effect.", parse=int, metavar="N"
    )
    # The scheduler's own client takes a third of the CPU that aiohttp takes (docs/decisions/0005).
    own_http: bool = _setting(
        True,
        "Send writes over the scheduler's own HTTP/1.1 client. false sends them through aiohttp, which takes more CPU;"
        " reads, watches and the Lease always go through aiohttp.",
        parse=boolean,
        metavar="BOOL",
    )
    pod_initial_backoff_seconds: float = _setting(
        1.0,
        "Pause after a pod's first failed attempt; it doubles with each further one.",
        parse=float,
        metavar="SECONDS",
    )
    pod_max_backoff_seconds: float = _setting(
        10.0, "Longest pause after a failed attempt.", parse=float, metavar="SECONDS"
    )
    pod_max_in_unschedulable_pods_duration: float = _setting(
        300.0,
        "An unschedulable pod is retried after at most this long.",
        parse=duration,
        metavar="DURATION",
    )
    # What cannot be read never counts as free.
    unknown_allocations: str = _setting(
        "pessimistic",
        "How to treat a bound pod whose Neuron ids are unknown. pessimistic: it may use any core that no other pod"
        " provably holds. count-only: only its count is subtracted; RISK: two pods may be given the same cores.",
        metavar="POLICY",
    )
    volume_bind_timeout: float = _setting(
        VOLUME_BIND_TIMEOUT,
        "If a pod's volumes are not bound within this time after it got its node, it is scheduled again.",
        parse=duration,
        metavar="DURATION",
    )
    # Beyond this the API server gets slower rather than faster (measured on one server with etcd beside it).
    bind_concurrency: int = _setting(
        48, "Maximum concurrent Binding requests, repeated ones not counted.", parse=int, metavar="N"
    )
    # What a node loses by it is the time from a Binding to the pod's first status (docs/decisions/0011).
    allocate_fence: bool = _setting(
        True,
        "Delay the Binding of a pod that asks for several Neuron devices or cores, but not for all of a node, until the"
        " kubelet has admitted every earlier pod of the node with the same request, for at most 120s each. false does"
        " not wait. RISK: the device plugin may swap the devices of two such pods; when one of them ends, a third pod"
        " is given devices that the other still uses.",
        parse=boolean,
        metavar="BOOL",
    )
    # Below the 30 s that Kubernetes gives a pod by default.
    shutdown_grace_period: float = _setting(
        25.0,
        "After SIGTERM or SIGINT, wait at most this long for running Bindings; a second signal ends the wait.",
        parse=duration,
        metavar="DURATION",
    )
    profiles: tuple[ProfileConfig, ...] = attrs.field(default=attrs.Factory(_only_profile, takes_self=True))

    def __attrs_post_init__(self) -> None:
        self._check_numbers()
        self._check_names()
        self._check_profiles()
        if self.leader_elect:
            self._check_lease()
        self._check_endpoints()

    @property
    def serves_tls(self) -> bool:
        """Whether there is an HTTPS endpoint."""
        return bool(self.secure_port and self.tls_cert_file)

    @property
    def bind_timeout(self) -> float:
        """
        Seconds after which a Binding's outcome counts as unknown.

        With leader election, it and the renew deadline together stay below the lease duration: what the old leader
        started last has ended before the next one may begin.
        """
        if not self.leader_elect:
            return BIND_TIMEOUT
        spare = self.leader_elect_lease_duration - self.leader_elect_renew_deadline
        return min(BIND_TIMEOUT, round(0.8 * spare, 3))

    def check_files(self) -> None:
        """
        Look whether the files that the settings name can be read.

        Raises:
            ConfigurationError: one cannot.
        """
        for name in ("kubeconfig", "tls_cert_file", "tls_private_key_file"):
            path = getattr(self, name)
            if path and not Path(path).is_file():
                raise ConfigurationError(f"{flag(name)}: there is no file {path}")
            if path and not os.access(path, os.R_OK):
                raise ConfigurationError(f"{flag(name)}: {path} is not readable by this user")

    def _check_numbers(self) -> None:
        for name, low, high in (
            ("port", 0, 65535),
            ("secure_port", 0, 65535),
            ("v", 0, 10),
            ("kube_api_qps", 0, 1e6),
            ("kube_api_burst", 1, 1e6),
            ("pod_initial_backoff_seconds", 0.001, 86400),
            ("pod_max_backoff_seconds", 0.001, 86400),
            ("pod_max_in_unschedulable_pods_duration", 1, 86400),
            ("volume_bind_timeout", 0, 86400),
            ("bind_concurrency", 1, 1024),
            ("shutdown_grace_period", 0, 3600),
        ):
            if not low <= getattr(self, name) <= high:
                raise ConfigurationError(f"{flag(name)} is {getattr(self, name):g}; it must be {low:g} to {high:g}")
        if self.pod_initial_backoff_seconds > self.pod_max_backoff_seconds:
            raise ConfigurationError(
                f"--pod-initial-backoff-seconds ({self.pod_initial_backoff_seconds:g}) is longer than"
                f" --pod-max-backoff-seconds ({self.pod_max_backoff_seconds:g})"
            )

    def _check_names(self) -> None:
        for name in ("scheduler_name", "leader_elect_resource_name", "leader_elect_resource_namespace"):
            _require_name(flag(name), getattr(self, name))
        for name, known in (("logging_format", LOGGING_FORMATS), ("unknown_allocations", UNKNOWN_ALLOCATIONS)):
            if getattr(self, name) not in known:
                raise ConfigurationError(f"{flag(name)} is {getattr(self, name)!r}; it must be {' or '.join(known)}")

    def _check_profiles(self) -> None:
        names = [profile.scheduler_name for profile in self.profiles]
        if not names:
            raise ConfigurationError("there is no profile: name at least one scheduler whose pods are to be placed")
        for name in names:
            _require_name("schedulerName", name)
            if names.count(name) > 1:
                raise ConfigurationError(f"schedulerName {name!r} has more than one profile; keep one of them")
        for profile in self.profiles:
            if profile.unknown_allocations not in UNKNOWN_ALLOCATIONS:
                raise ConfigurationError(
                    f"unknownAllocations of {profile.scheduler_name!r} is {profile.unknown_allocations!r};"
                    f" it must be {' or '.join(UNKNOWN_ALLOCATIONS)}"
                )
            if not 0 <= profile.volume_bind_timeout <= 86400:
                raise ConfigurationError(
                    f"volumeBindTimeout of {profile.scheduler_name!r} is {profile.volume_bind_timeout:g}s;"
                    " it must be 0s to 24h"
                )

    def _check_endpoints(self) -> None:
        try:
            ipaddress.ip_address(self.bind_address)
        except ValueError:
            raise ConfigurationError(
                f"--bind-address is {self.bind_address!r}; it must be an IP address without brackets, such as 127.0.0.1"
                " or ::1; 0.0.0.0 means all addresses, IPv4 and IPv6"
            ) from None
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            given, missing = ("cert", "private-key") if self.tls_cert_file else ("private-key", "cert")
            raise ConfigurationError(f"--tls-{given}-file needs --tls-{missing}-file beside it")
        if self.tls_cert_file and self.secure_port and self.secure_port == self.port:
            raise ConfigurationError(f"--port and --secure-port are both {self.port}: give them different ports")
        if self.authorize_metrics and not self.serves_tls:
            raise ConfigurationError(
                "--authorize-metrics needs --secure-port above 0, --tls-cert-file and --tls-private-key-file:"
                " a token must not be sent without TLS"
            )

    def _check_lease(self) -> None:
        lease, renew = self.leader_elect_lease_duration, self.leader_elect_renew_deadline
        if lease < 1 or lease != int(lease):
            raise ConfigurationError(
                f"--leader-elect-lease-duration is {lease:g}s; a Lease counts in whole seconds, from 1s on"
            )
        if renew >= lease:
            raise ConfigurationError(
                f"--leader-elect-renew-deadline ({renew:g}s) must be below --leader-elect-lease-duration ({lease:g}s)"
            )
        if self.leader_elect_retry_period <= 0 or renew <= JITTER * self.leader_elect_retry_period:
            raise ConfigurationError(
                f"--leader-elect-retry-period ({self.leader_elect_retry_period:g}s) must be above 0 and, times"
                f" {JITTER}, below --leader-elect-renew-deadline ({renew:g}s)"
            )
        if self.bind_timeout < SHORTEST_BIND_TIMEOUT:
            raise ConfigurationError(
                f"--leader-elect-lease-duration ({lease:g}s) must exceed --leader-elect-renew-deadline ({renew:g}s)"
                f" by {SHORTEST_BIND_TIMEOUT / 0.8:g}s or more, so that an old leader's last Binding has ended in time"
            )


def _require_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{what} is {name!r}; it must be a Kubernetes name: lower-case letters, digits, '-' and '.'"
        )


def settings() -> "tuple[attrs.Attribute[Any], ...]":
    """Return the fields that are flags."""
    return tuple(field for field in attrs.fields(Config) if "parse" in field.metadata)


def flag(name: str) -> str:
    """Return the flag of a field: `--bind-address` for `bind_address`."""
    return "--" + name.replace("_", "-")

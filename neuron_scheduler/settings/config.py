"""
All settings of the process, and their defaults.

A setting is declared once, here: `arguments.py` derives the flags from these fields, `config_file.py` the file's
format. Only the composition root sees the whole `Config`; all other parts get the few values that they need.
Contradictions are refused when it is built (`contradictions`), so that a process never starts half-configured. Files
that settings name are read by whoever uses them.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from neuron_scheduler.settings import contradictions
from neuron_scheduler.settings.profile_config import VOLUME_BIND_TIMEOUT, CapacityRequests, ProfileConfig
from neuron_scheduler.settings.setting import (
    duration,
    ip_address,
    kubernetes_name,
    limits,
    listen_address,
    one_of,
    period,
    setting,
    settings_of,
)

EXTENDER_ADDRESS: Final = ":12345"
"""The default address of the command `extender`, with the port of AWS's extension."""
# Beyond this the API server gets slower rather than faster (measured on one server with etcd beside it).
BIND_CONCURRENCY: Final = 48


def _only_profile(config: "Config") -> tuple[ProfileConfig, ...]:
    return (ProfileConfig(**{name: getattr(config, name) for name in OF_A_PROFILE}),)


@attrs.frozen(kw_only=True)
class Config:
    """
    The settings of `neuron-scheduler run` and `extender`; each field is the flag of the same name, but `profiles`,
    `queue` and `bind_concurrency`.

    Durations are seconds. The defaults are kube-scheduler's unless the field's comment says why not.

    Attributes:
        queue: whether pods are scheduled from a queue of our own; if not, only through kube-scheduler.
        bind_concurrency: Bindings that are tried for the first time at once; only tests change it.
        profiles: all scheduler names that are served; the fields in `OF_A_PROFILE` describe the only one where none is
            listed.

    Raises:
        ConfigurationError: a value is out of range, or two contradict each other.
    """

    kubeconfig: str = setting(
        "",
        "Path of a kubeconfig file.",
        metavar="FILE",
        shown="the service account in a pod, elsewhere $KUBECONFIG or ~/.kube/config",
        path="clientConnection.kubeconfig",
    )
    master: str = setting(
        "",
        "Address of the API server; overrides the one in --kubeconfig. Without --kubeconfig no credentials are sent.",
        metavar="URL",
        path="clientConnection.master",
    )
    # AWS's documentation and every pod written for it say my-scheduler.
    scheduler_name: str = setting(
        "my-scheduler", "Schedule the pods with this spec.schedulerName.", metavar="NAME", check=kubernetes_name
    )
    leader_elect: bool = setting(
        True,
        "Hold a Lease before scheduling, so that one of several replicas is active. If false, run one replica only, and"
        " remove the admission policy on Bindings.",
        path="leaderElection.leaderElect",
    )
    leader_elect_lease_duration: float = setting(
        15.0,
        "How long the other replicas wait before they take a Lease that its leader does not renew.",
        parse=duration,
        path="leaderElection.leaseDuration",
    )
    leader_elect_renew_deadline: float = setting(
        10.0,
        "A leader that cannot renew the Lease for this long stops binding and exits.",
        parse=duration,
        path="leaderElection.renewDeadline",
    )
    leader_elect_retry_period: float = setting(
        2.0,
        "How often the leader renews the Lease, and the pause between failed attempts to take it.",
        parse=duration,
        path="leaderElection.retryPeriod",
    )
    # The name AWS's my-scheduler uses, so that the old scheduler and this one exclude each other during a migration.
    leader_elect_resource_name: str = setting(
        "my-scheduler", "Name of the Lease.", metavar="NAME", path="leaderElection.resourceName", check=kubernetes_name
    )
    leader_elect_resource_namespace: str = setting(
        "kube-system",
        "Namespace of the Lease.",
        metavar="NAME",
        path="leaderElection.resourceNamespace",
        check=kubernetes_name,
    )
    bind_address: str = setting(
        "0.0.0.0",  # noqa: S104 - probes come from the node
        "Address of the health and metrics endpoints; 0.0.0.0 or :: means all addresses, IPv4 and IPv6.",
        metavar="IP",
        check=ip_address,
    )
    # The port that kube-scheduler once served without TLS: probes and scrapers need no certificate, nothing is secret.
    port: int = setting(
        10251, "Port of /healthz, /livez, /readyz, /metrics without TLS; 0: off.", check=limits(0, 65535)
    )
    secure_port: int = setting(
        10259, "Port of the same endpoints with TLS, if certificate and key are given; 0: off.", check=limits(0, 65535)
    )
    tls_cert_file: str = setting("", "Certificate (and chain) for --secure-port, PEM.", metavar="FILE")
    tls_private_key_file: str = setting("", "Private key for --secure-port, PEM.", metavar="FILE")
    # kube-scheduler always does; it has no plain port.
    authorize_metrics: bool = setting(
        False,
        "Serve /metrics on --secure-port only, to clients whose bearer token has the right to get that path"
        " (TokenReview and SubjectAccessReview). Health needs no token.",
    )
    # Off like everything that shows the cluster to clients.
    answer_questions: bool = setting(
        False,
        "Answer /v1/why, /v1/fit, /v1/fleet, /v1/waiting and /v1/decisions, to clients whose bearer token has the"
        " right to get that path. They see the names of pods that they may get (TokenReview and SubjectAccessReview)."
        " A token is accepted on --secure-port; on --port from the same host only, as through kubectl port-forward.",
    )
    serve_page: bool = setting(
        False,
        "Serve a page at /page: the fleet, the pending pods, the last decisions. Whoever can connect sees it without"
        " the names of pods; a token adds those that its user may get. It needs --answer-questions.",
    )
    extender_bind_address: str = setting(
        "",
        "Serve kube-scheduler's HTTP extender protocol (/filter, /prioritize, /bind, /preempt) here. RISK: whoever can"
        " connect can have pods bound; restrict that with a NetworkPolicy, or with --extender-client-ca-file.",
        metavar="ADDRESS:PORT",
        shown=f"off; {EXTENDER_ADDRESS} for the command extender",
        path="extender.bindAddress",
        check=listen_address,
    )
    extender_tls_cert_file: str = setting(
        "",
        "Certificate (and chain) of --extender-bind-address, PEM. Without it there is no TLS.",
        metavar="FILE",
        path="extender.tlsCertFile",
    )
    extender_tls_private_key_file: str = setting(
        "", "Private key for --extender-tls-cert-file, PEM.", metavar="FILE", path="extender.tlsPrivateKeyFile"
    )
    extender_client_ca_file: str = setting(
        "",
        "Serve the extender only to clients with a certificate of one of these authorities, PEM; replicas show"
        " each other --extender-tls-cert-file. Probes of this port need a certificate too, those of --port none.",
        metavar="FILE",
        path="extender.clientCAFile",
    )
    # 2 shows one line per outcome of an attempt, as AWS's manifests for kube-scheduler ask for.
    v: int = setting(
        2,
        "Verbosity of the log: 2 outcomes, 3 attempts and nodes, 4 filters and allocations, 6 usage maps; for"
        " kube-scheduler's requests all of these at 2.",
        path="verbosity",
        check=limits(0, 10),
    )
    logging_format: str = setting("text", "text (klog) or json.", metavar="FORMAT", check=one_of("text", "json"))
    # kube-scheduler's 50 would bound us to 50 pods/s; the API server's own priority and fairness protects it.
    kube_api_qps: float = setting(
        0.0,
        "Limit on writes to the API server per second; 0: no limit.",
        path="clientConnection.qps",
        check=limits(0, 1e6),
    )
    kube_api_burst: int = setting(
        100,
        "Writes allowed at once under --kube-api-qps; without that limit it has no effect.",
        path="clientConnection.burst",
        check=limits(1, 1e6),
    )
    pod_initial_backoff_seconds: float = setting(
        1.0,
        "Pause after a pod's first error or second refusal in a row; it doubles with each further one.",
        metavar="SECONDS",
        check=limits(0.001, 86400),
    )
    pod_max_backoff_seconds: float = setting(
        10.0,
        "Longest pause between two attempts after errors or refusals in a row.",
        metavar="SECONDS",
        check=limits(0.001, 86400),
    )
    pod_max_in_unschedulable_pods_duration: float = setting(
        300.0, "An unschedulable pod is retried after at most this long.", parse=duration, check=period("1s", "24h")
    )
    volume_bind_timeout: float = setting(
        VOLUME_BIND_TIMEOUT,
        "A pod whose volumes are not bound within this time after its decision is retried.",
        parse=duration,
        check=period("0s", "24h"),
    )
    allow_aligned_pairs: bool = setting(
        False,
        "On Trn2 and Trn3, also serve requests for 2 devices, and for the cores of two (8 logical ones), with aligned"
        " pairs of devices: 0 and 1, 2 and 3, ... RISK: AWS names 1, 4, 8 and 16 devices, for Trn1. Pairs were never"
        " run on hardware, and the device plugin may refuse such pods.",
    )
    turn_after: float = setting(
        0.0,
        "Keep whole machines, as they come free, for a pod or a group of one topology that asks for whole machines and"
        " has waited this long, while enough is free in pieces; 0: off.",
        parse=duration,
        check=period("0s", "168h"),
    )
    claims: bool = setting(
        False,
        "Schedule pods with resource claims (Dynamic Resource Allocation, resource.k8s.io/v1), on nodes whose devices"
        " drivers publish. It needs the component claims.",
    )
    # It costs a node the time from a Binding to the pod's first status (docs/decisions/0011).
    allocate_fence: bool = setting(
        True,
        "Hold the Binding of a pod with several Neuron devices or cores, but not all of a node. It is sent when the"
        " kubelet has admitted every earlier pod of the node with the same request, after at most 120s each. RISK of"
        " false: the device plugin may swap the devices of two such pods; when one ends, a third pod is given devices"
        " that the other still uses.",
    )
    # Below the 30 s that Kubernetes gives a pod by default.
    shutdown_grace_period: float = setting(
        25.0,
        "After SIGTERM or SIGINT, wait at most this long for running Bindings; a second signal ends the wait.",
        parse=duration,
        check=period("0s", "1h"),
    )
    queue: bool = attrs.field(default=True)
    bind_concurrency: int = attrs.field(default=BIND_CONCURRENCY)
    profiles: tuple[ProfileConfig, ...] = attrs.field(default=attrs.Factory(_only_profile, takes_self=True))

    def __attrs_post_init__(self) -> None:
        contradictions.require_usable(self, of_a_profile=OF_A_PROFILE)

    @property
    def capacity_requests(self) -> Mapping[str, CapacityRequests]:
        """How an autoscaler is asked for machines, by the scheduler names of the profiles that ask."""
        asking = {profile.scheduler_name: profile.capacity_requests for profile in self.profiles if self.queue}
        return {name: requests for name, requests in asking.items() if requests is not None}

    @property
    def serves_tls(self) -> bool:
        return bool(self.secure_port and self.tls_cert_file)

    @property
    def bind_timeout(self) -> float:
        """Seconds after which the outcome of a Binding, or of another write that only a leader may send, is unknown."""
        if not self.leader_elect:
            return contradictions.LONGEST_WRITE
        return contradictions.write_timeout(
            lease=self.leader_elect_lease_duration, renew=self.leader_elect_renew_deadline
        )


def settings() -> "tuple[attrs.Attribute[Any], ...]":
    return settings_of(Config)


OF_A_PROFILE: Final = tuple(field.name for field in settings() if field.name in attrs.fields_dict(ProfileConfig))
"""Settings that say how the pods of one scheduler name are served: the file has them in its profiles."""

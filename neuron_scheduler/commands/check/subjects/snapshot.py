"""A cluster as `check` has read it once: frozen values, and `Unread` in place of what could not be read."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final, Never

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.commands.check.subjects.known import AWS_SCHEDULER, CAPACITY, EXTENDER
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import DEFAULT_SCHEDULER, Pod
from neuron_scheduler.model.resources import NEURON_NAMES

_MODES: Final = ("run", "extender")
Specs = Mapping[str, Mapping[str, Any]]
"""The `spec` of each admission policy, or binding, by its name."""


@attrs.frozen
class Unread:
    """
    What could not be read; whoever goes through it meets no objects.

    Attributes:
        request: verb and resource, such as `list daemonsets.apps`.
        forbidden: whether the right is missing; else `reason` says what happened.
    """

    request: str
    forbidden: bool = True
    reason: str = ""

    def __iter__(self) -> Iterator[Never]:
        return iter(())

    def __str__(self) -> str:
        return f"you may not {self.request}" if self.forbidden else f"{self.request}: {self.reason}"


@attrs.frozen
class SeenContainer:
    """A container of a workload's template; `words` are its command and arguments."""

    image: str
    words: tuple[str, ...] = ()


@attrs.frozen
class SeenWorkload:
    """
    The Deployment of a scheduler, or the DaemonSet of a device plugin.

    Attributes:
        behind: how many pods a rollout has still to replace.
        account: the name of its pods' ServiceAccount.
        config_maps: the names of those that its pods mount.
        release, release_namespace: the Helm release that installed it; empty if none did.
        chart: the name and version of that release's chart, if its label is there.
        serves: scheduler names that its configuration has; None if that is unknown, Unread if it may not be read.
        asks: whether a profile in its configuration asks for machines.
        claims: whether its configuration turns claims on; a flag may say otherwise.
    """

    name: str
    namespace: str
    replicas: int = 0
    ready: int = 0
    behind: int = 0
    account: str = "default"
    containers: tuple[SeenContainer, ...] = ()
    config_maps: tuple[str, ...] = ()
    release: str = ""
    release_namespace: str = ""
    chart: str = ""
    serves: "tuple[str, ...] | Unread | None" = None
    asks: bool = False
    claims: bool = False

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def mode(self) -> str:
        """The command of our own program that it runs, `run` or `extender`; empty if it is not our program."""
        for container in self.containers:
            words = container.words
            if words and words[0].rpartition("/")[2] == "neuron-scheduler":
                words = words[1:]
            if words and words[0] in _MODES and "kube-scheduler" not in container.image:
                return words[0]
        return ""

    @property
    def has_extender(self) -> bool:
        """Whether it is our program, and serves the extender protocol to the default scheduler."""
        return self.mode == "extender" or bool(self.mode and self.values_of("--extender-bind-address"))

    @property
    def has_claims(self) -> bool:
        """Whether it is our program, and serves pods with claims on devices."""
        flagged = self.values_of("--claims")
        return bool(self.mode) and (flagged[-1] != "false" if flagged else self.claims)

    def values_of(self, flag: str) -> tuple[str, ...]:
        words = [word.partition("=") for container in self.containers for word in container.words]
        return tuple(value for name, _, value in words if name == flag)

    @property
    def flagged_names(self) -> tuple[str, ...]:
        return tuple(filter(None, self.values_of("--scheduler-name")))


@attrs.frozen
class Lease:
    """A Lease; `age` is the number of seconds since it was renewed, None if that cannot be read."""

    holder: str
    duration: int
    age: float | None = None

    @property
    def is_expired(self) -> bool:
        """Whether it was not renewed for twice its duration: the clocks of two machines differ a little."""
        return self.age is not None and self.age > 2 * max(self.duration, 1)

    @property
    def pod_name(self) -> str:
        """The pod of the holder: both kube-scheduler and we write `<pod>_<uuid>`."""
        return self.holder.rpartition("_")[0] or self.holder


def has_neuron_request(pod: Pod) -> bool:
    """Return whether a pod asks for Neuron; one that asks the autoscaler for a machine is for no scheduler."""
    return pod.namespace != CAPACITY and any(pod.requests.get(name) for name in NEURON_NAMES)


@attrs.frozen(kw_only=True)
class Snapshot:
    """
    What was read of a cluster.

    Attributes:
        server, source: the API server's URL, and where the address comes from.
        version: such as `v1.36.2`.
        given_names: scheduler names that the user has given; empty for those of the installation.
        pods: those that `ask`, and have not ended.
        pinned: the keys of those of them that set one of `PINS` themselves.
        cluster: the nodes with these pods, the unreadable ones, and all members of groups, as the scheduler has them.
        pod_groups: Unread if what PodGroups say of their groups is not known.
        deployments: those of schedulers, in all namespaces.
        daemon_sets: those of the device plugin, in all namespaces.
        publishing: the nodes whose Neuron devices a driver publishes, by name.
        malformed: objects that cannot be read, other than nodes, with the reason.
        taken: when it was read, in seconds since the epoch.
        rights: whether our ServiceAccount has each right that it needs; empty if we are not installed there.
        lacking: what asking for machines needs and is not there; None if no profile asks for them.
    """

    server: str
    source: str
    version: str | Unread
    given_names: tuple[str, ...] = ()
    program_version: str = ""
    nodes: tuple[Node, ...] | Unread = ()
    pods: tuple[Pod, ...] | Unread = ()
    pinned: tuple[str, ...] = ()
    cluster: Cluster = attrs.field(factory=Cluster)
    pod_groups: Unread | None = None
    deployments: tuple[SeenWorkload, ...] | Unread = ()
    daemon_sets: tuple[SeenWorkload, ...] | Unread = ()
    lease: Lease | Unread | None = None
    policies: Specs | Unread = attrs.field(factory=dict)
    policy_bindings: Specs | Unread = attrs.field(factory=dict)
    publishing: frozenset[str] | Unread = frozenset()
    malformed: tuple[str, ...] = ()
    taken: float = 0.0
    rights: Mapping[str, bool] | Unread = attrs.field(factory=dict)
    lacking: tuple[str, ...] | Unread | None = None

    @cached_property
    def ours(self) -> tuple[SeenWorkload, ...]:
        return tuple(d for d in self.deployments if d.mode)

    @cached_property
    def has_claims(self) -> bool:
        return any(deployment.has_claims for deployment in self.ours)

    @cached_property
    def foreign(self) -> tuple[SeenWorkload, ...]:
        return tuple(d for d in self.deployments if d.replicas and not d.mode)

    @cached_property
    def pending(self) -> tuple[str, ...]:
        """The keys of pods that wait for us: they have our scheduler name, and no node."""
        return tuple(p.key for p in self.pods if p.scheduler_name in self.scheduler_names and not p.node_name)

    @property
    def in_the_way(self) -> tuple[SeenWorkload, ...]:
        """Deployments of others that have our names, or serve them: an installation would fail, or fight them."""
        names = {*self.scheduler_names, AWS_SCHEDULER, EXTENDER}
        served = (
            (d, {*d.serves} if isinstance(d.serves, tuple) and d.replicas else set[str]()) for d in self.deployments
        )
        return tuple(d for d, of_it in served if not d.mode and {d.name, *of_it} & names)

    @cached_property
    def scheduler_names(self) -> tuple[str, ...]:
        served = [name for d in self.ours if isinstance(d.serves, tuple) for name in d.serves]
        served += [DEFAULT_SCHEDULER for d in self.ours if d.has_extender]
        return self.given_names or tuple(dict.fromkeys(served)) or ("my-scheduler",)

    @property
    def unread(self) -> tuple[Unread, ...]:
        """Everything that could not be read, each request once."""
        parts = [*attrs.asdict(self, recurse=False).values(), *(d.serves for d in self.deployments)]
        return tuple(dict.fromkeys(part for part in parts if isinstance(part, Unread)))

"""
A cluster as `check` has read it once: frozen values, and `Unread` in place of what could not be read.

Only what some subject looks at is kept, so that a large cluster takes little memory: of 20,000 pods those that ask for
Neuron and those of schedulers and device plugins. Does not judge anything.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final, Never

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.commands.check.subjects.known import OLDER_NAME, username
from neuron_scheduler.model.node import AnnotatedNode
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import NO_LABELS

DEFAULT_SCHEDULER: Final = "default-scheduler"
_MODES: Final = ("run", "extender")


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
class SeenPod:
    """
    A pod that asks for Neuron, or is of a scheduler, an extension or a device plugin.

    Attributes:
        account: the name of its ServiceAccount.
        readable: if it is not, only names, uid and node are known, and it may ask for Neuron.
    """

    pod: Pod
    account: str = "default"
    images: tuple[str, ...] = ()
    readable: bool = True


@attrs.frozen
class Object:
    """
    The identity of an object.

    Attributes:
        namespace: empty for an object without one.
        release: the Helm release that installed it; empty if none did.
    """

    kind: str
    name: str
    namespace: str = ""
    labels: Mapping[str, str] = NO_LABELS
    release: str = ""
    release_namespace: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, or `name`."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@attrs.frozen
class SeenContainer:
    """A container of a workload's template; `words` are its command and arguments."""

    name: str
    image: str
    words: tuple[str, ...] = ()


@attrs.frozen
class SeenWorkload:
    """
    A Deployment or DaemonSet.

    Attributes:
        labels: of its pods.
        account: the name of its pods' ServiceAccount.
        config_maps: the names of those that its pods mount.
        serves: scheduler names that its configuration has; None if that is unknown, Unread if it may not be read.
        asks: whether a profile in its configuration asks for machines.
    """

    object: Object
    replicas: int = 0
    ready: int = 0
    account: str = "default"
    labels: Mapping[str, str] = NO_LABELS
    containers: tuple[SeenContainer, ...] = ()
    config_maps: tuple[str, ...] = ()
    serves: "tuple[str, ...] | Unread | None" = None
    asks: bool = False

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
    def extends_default(self) -> bool:
        """Whether it is our program, and serves the extender protocol to the default scheduler."""
        return self.mode == "extender" or bool(self.mode and self.values_of("--extender-bind-address"))

    def values_of(self, flag: str) -> tuple[str, ...]:
        """Return the values that a flag has in the containers; without one it is empty."""
        words = [word.partition("=") for container in self.containers for word in container.words]
        return tuple(value for name, _, value in words if name == flag)

    @property
    def flagged_names(self) -> tuple[str, ...]:
        """The scheduler names that its flags give."""
        return tuple(filter(None, self.values_of("--scheduler-name")))


@attrs.frozen
class Lease:
    """A Lease; `age` is the number of seconds since it was renewed, None if that cannot be read."""

    holder: str
    duration: int
    age: float | None = None

    @property
    def expired(self) -> bool:
        """Whether it was not renewed for twice its duration: the clocks of two machines differ a little."""
        return self.age is not None and self.age > 2 * max(self.duration, 1)

    @property
    def pod_name(self) -> str:
        """The pod of the holder: both kube-scheduler and we write `<pod>_<uuid>`."""
        return self.holder.rpartition("_")[0] or self.holder


@attrs.frozen
class RoleBinding:
    """A ClusterRoleBinding; `accounts` are `namespace/name` of its ServiceAccounts."""

    object: Object
    role: str
    accounts: tuple[str, ...] = ()


@attrs.frozen
class Policy:
    """A ValidatingAdmissionPolicy or its binding, with its `spec` as it is."""

    object: Object
    spec: Mapping[str, Any]


@attrs.frozen
class Access:
    """Whether a ServiceAccount has a right."""

    right: str
    allowed: bool


@attrs.frozen(kw_only=True)
class Asking:
    """
    What asking for machines needs, of a cluster whose scheduler asks for them.

    Attributes:
        namespace: whether the namespace is there.
        priority_class: whether the priority of the placeholders is there.
        rights: of our ServiceAccount there; None if the API server reviews no rights.
    """

    namespace: bool | Unread = True
    priority_class: bool | Unread = True
    rights: tuple[Access, ...] | Unread | None = ()


@attrs.frozen(kw_only=True)
class Snapshot:
    """
    What was read of a cluster.

    Attributes:
        server, source: the API server's URL, and where the address comes from.
        version: such as `v1.36.2`.
        namespace: where the scheduler is, or will be, installed.
        lease_name: of the Lease in that namespace.
        given_names: scheduler names that the user has given; empty for those of the installation.
        pods: all that ask for Neuron and have not ended.
        system_pods: those of schedulers, extensions and device plugins.
        slices: names of the nodes that have ResourceSlices of AWS's driver.
        deployments: those of schedulers, in all namespaces.
        daemon_sets: those of the device plugin, in all namespaces.
        accounts: all ServiceAccounts of the namespace.
        role_bindings: ClusterRoleBindings of our accounts, AWS's and our older one.
        others: further objects with names that are or were ours.
        malformed: objects that cannot be read, other than pods and nodes, with the reason.
        rights: what our ServiceAccount may do; empty if it does not exist, None if the API server reviews no rights.
        asking: what asking for machines needs; None if no profile asks for them.
    """

    server: str
    source: str
    version: str | Unread
    not_served: tuple[str, ...] | Unread = ()
    namespace: str = "kube-system"
    lease_name: str = "my-scheduler"
    given_names: tuple[str, ...] = ()
    program_version: str = ""
    nodes: tuple[AnnotatedNode, ...] | Unread = ()
    pods: tuple[SeenPod, ...] | Unread = ()
    system_pods: tuple[SeenPod, ...] | Unread = ()
    slices: frozenset[str] | Unread = frozenset()
    deployments: tuple[SeenWorkload, ...] | Unread = ()
    daemon_sets: tuple[SeenWorkload, ...] | Unread = ()
    lease: Lease | Unread | None = None
    accounts: tuple[Object, ...] | Unread = ()
    role_bindings: tuple[RoleBinding, ...] | Unread = ()
    others: tuple[tuple[Object, ...] | Unread, ...] = ()
    policies: tuple[Policy, ...] | Unread = ()
    policy_bindings: tuple[Policy, ...] | Unread = ()
    malformed: tuple[str, ...] = ()
    rights: tuple[Access, ...] | Unread | None = ()
    asking: Asking | None = None

    @cached_property
    def cluster(self) -> Cluster:
        """The nodes with what their pods hold, as the scheduler itself computes it."""
        cluster = Cluster()
        for node in self.nodes:
            cluster.put_node(node.node)
        for seen in self.pods:
            if seen.pod.node_name:
                put = cluster.put_pod if seen.readable else cluster.put_unreadable_pod
                put(seen.pod)
        return cluster

    @cached_property
    def ours(self) -> tuple[SeenWorkload, ...]:
        """The Deployments that run our program."""
        return tuple(d for d in self.deployments if d.mode)

    @cached_property
    def foreign(self) -> tuple[SeenWorkload, ...]:
        """The Deployments of other schedulers."""
        return tuple(d for d in self.deployments if not d.mode)

    @property
    def installed(self) -> bool:
        """Whether a Deployment runs our program; if these cannot be read, whether our ServiceAccount exists."""
        if isinstance(self.deployments, Unread):
            return any(a.name == self.account for a in self.accounts)
        return bool(self.ours)

    @cached_property
    def account(self) -> str:
        """The name of the ServiceAccount that our Deployment runs under, or would."""
        return next((d.account for d in self.ours if d.object.namespace == self.namespace), "neuron-scheduler")

    @property
    def is_older(self) -> bool:
        """Whether our program runs, and was installed under the older names."""
        return bool(self.ours) and self.account == OLDER_NAME

    @property
    def username(self) -> str:
        """The user name of that ServiceAccount."""
        return username(f"{self.namespace}/{self.account}")

    @cached_property
    def scheduler_names(self) -> tuple[str, ...]:
        """The scheduler names that pods with Neuron should have."""
        served = [name for d in self.ours if isinstance(d.serves, tuple) for name in d.serves]
        served += [DEFAULT_SCHEDULER for d in self.ours if d.extends_default]
        return self.given_names or tuple(dict.fromkeys(served)) or ("my-scheduler",)

    @property
    def unread(self) -> tuple[Unread, ...]:
        """Everything that could not be read, each request once."""
        parts = [part for value in (self, self.asking) if value for part in attrs.asdict(value, recurse=False).values()]
        of_workloads = (d.serves for d in (*self.ours, *self.foreign))
        every = (*parts, *self.others, *of_workloads)
        return tuple(dict.fromkeys(part for part in every if isinstance(part, Unread)))

"""
AWS's device plugin runs, and the policy on allocations lets its account write.

The plugin is known by the names of AWS's manifests and by its image. Its account differs between distributions: with
an account that is not in `writers`, it cannot mark an allocation as handed out.
"""

from collections.abc import Iterator, Sequence

from neuron_scheduler.commands.check.subjects import commands, known
from neuron_scheduler.commands.check.subjects.finding import Finding, Severity, error, ok, unknown, warning
from neuron_scheduler.commands.check.subjects.known import ALLOCATIONS, PLUGIN
from neuron_scheduler.commands.check.subjects.nodes import has_neuron_type
from neuron_scheduler.commands.check.subjects.policies import strings_of
from neuron_scheduler.commands.check.subjects.snapshot import SeenWorkload, Snapshot, Unread
from neuron_scheduler.neuron.catalog import machine_of

DOCUMENTED_ACCOUNT = f"kube-system/{PLUGIN}"


def is_plugin(workload: SeenWorkload) -> bool:
    """Return whether a DaemonSet is the device plugin."""
    images = (container.image for container in workload.containers)
    return PLUGIN in workload.object.name or known.is_of_plugin(workload.labels, images)


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield whether the plugin is there, and whether its account may write."""
    plugins = tuple(filter(is_plugin, snapshot.daemon_sets))
    of_pods = tuple(seen for seen in snapshot.system_pods if known.is_of_plugin(seen.pod.labels, seen.images))
    for plugin in plugins:
        yield from _state(plugin)
    if not (plugins or of_pods):
        yield from _absent(snapshot)
    accounts = {f"{plugin.object.namespace}/{plugin.account}" for plugin in plugins}
    yield from _writes(snapshot, sorted(accounts | {f"{seen.pod.namespace}/{seen.account}" for seen in of_pods}))


def _state(plugin: SeenWorkload) -> Iterator[Finding]:
    key = f"DaemonSet {plugin.object.key}"
    if plugin.ready < plugin.replicas:
        yield warning(
            "device-plugin-not-ready",
            f"{key}: {plugin.ready} of {plugin.replicas} pods are ready",
            advice="Nodes whose plugin is not ready start no pods with Neuron",
            command=f"kubectl describe daemonset --namespace {plugin.object.namespace} {plugin.object.name}",
        )
    else:
        yield ok("device-plugin", f"{key}: {plugin.ready} of {plugin.replicas} pods are ready")


def _absent(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield what it means that no DaemonSet and no pod is known as the plugin."""
    if isinstance(snapshot.daemon_sets, Unread):
        yield unknown("device-plugin-unknown", "Whether the device plugin runs is", snapshot.daemon_sets)
    elif any(machine_of(seen.node) for seen in snapshot.nodes):
        yield Finding(
            "device-plugin-unfamiliar",
            Severity.UNCHECKED if snapshot.installed else Severity.NOTE,
            "Nodes offer Neuron, but no DaemonSet is known to be AWS's device plugin: whether its account may write"
            " allocations is not known",
            f"Compare its account with {commands.WRITERS}",
        )
    elif any(has_neuron_type(seen.node) for seen in snapshot.nodes):
        yield warning("device-plugin-missing", "No DaemonSet is AWS's Neuron device plugin", advice="Install it")
    else:
        yield ok("device-plugin-not-needed", "No device plugin is installed, and no node needs one yet")


def _writes(snapshot: Snapshot, accounts: Sequence[str]) -> Iterator[Finding]:
    """Yield the accounts of the plugin that the policy on allocations does not let write."""
    if isinstance(snapshot.policies, Unread):
        return  # `policies` says so
    policy = next((policy for policy in snapshot.policies if policy.object.name == ALLOCATIONS), None)
    if policy is not None:
        writers = strings_of(policy.spec, "writers")
        for account in accounts:
            if username(account) not in writers:
                yield error(
                    "device-plugin-may-not-write",
                    f"The policy {ALLOCATIONS} does not let the device plugin's account {account} write, so it cannot"
                    " mark devices as handed out",
                    advice=f"Add {username(account)!r} to {commands.WRITERS}",
                    command=f"kubectl edit validatingadmissionpolicy {ALLOCATIONS}",
                )
        return
    unusual = [username(account) for account in accounts if account != DOCUMENTED_ACCOUNT]
    if unusual:
        yield warning(
            "device-plugin-account",
            "The device plugin's account is not that of AWS's manifests, which our policy on allocations lets write",
            advice=f"Before you install, add its account to {commands.WRITERS}",
            objects=unusual,
        )


def username(account: str) -> str:
    """Return the user name of a ServiceAccount, from `namespace/name`."""
    return f"system:serviceaccount:{account.replace('/', ':')}"

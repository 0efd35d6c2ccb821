"""
Claims on devices: nodes whose Neuron devices a driver publishes, and whether our Deployment serves claims on them.

Which rights claims need is for `installation`, and whether their policy is as it should be for `policies`.
"""

from collections.abc import Iterator

from neuron_scheduler.commands.check.subjects import commands
from neuron_scheduler.commands.check.subjects.finding import Finding, error, note, ok, unknown, warning
from neuron_scheduler.commands.check.subjects.known import CLAIMS
from neuron_scheduler.commands.check.subjects.snapshot import Snapshot, Unread
from neuron_scheduler.model.devices import NEURON_DRIVER
from neuron_scheduler.model.resources import NEURON_NAMES
from neuron_scheduler.model.wording import count_text


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    unread = next((part for part in (snapshot.publishing, snapshot.deployments) if isinstance(part, Unread)), None)
    if unread is not None:
        yield unknown(
            "claims-unknown", "Whether nodes publish Neuron devices for claims, and claims are on, is", unread
        )
        return
    nodes = sorted(snapshot.publishing)
    published = f"{count_text(len(nodes), 'node publishes', 'nodes publish')} Neuron devices for claims"
    if nodes and snapshot.has_claims:
        yield ok("claims", f"{published}, and claims are on")
    elif nodes:
        make = warning if snapshot.ours else note
        yield make(
            "claims-off",
            f"{published}, and claims are off, so the scheduler gives none of them",
            advice=f"{commands.ADD_CLAIMS}, or leave pods with claims to default-scheduler",
            command=commands.apply(snapshot) if snapshot.ours else "",
            objects=nodes,
        )
    yield from _with_both(snapshot)
    yield from _of_other_schedulers(snapshot)
    if CLAIMS in snapshot.policies and not snapshot.has_claims:
        yield warning(
            "claims-policy-left",
            f"The policy {CLAIMS} is there, and claims are off: nobody gives Neuron devices to claims",
            command="kubectl delete --ignore-not-found -k manifests/components/claims",
        )


def _of_other_schedulers(snapshot: Snapshot) -> Iterator[Finding]:
    holders = [
        f"{pod_info.pod.key} on {node_info.node.name} ({pod_info.pod.scheduler_name})"
        for node_info in snapshot.cluster.view.rows()
        for pod_info in node_info.pod_infos.values()
        if any(device.driver == NEURON_DRIVER for device in pod_info.pod.devices)
        and pod_info.pod.scheduler_name not in snapshot.scheduler_names
    ]
    if holders and snapshot.has_claims:
        yield note(
            "claims-of-other-schedulers",
            f"{count_text(len(holders), 'pod')} of other schedulers have Neuron devices by claims",
            advice="They keep them; with the policy, new ones wait until they name this scheduler (docs/claims.md)",
            objects=sorted(holders),
        )


def _with_both(snapshot: Snapshot) -> Iterator[Finding]:
    counting = {node.name for node in snapshot.nodes if any(map(node.allocatable.get, NEURON_NAMES))}
    both = sorted(counting.intersection(snapshot.publishing))
    if both:
        make, effect = error, "two pods may get the same devices"
        if snapshot.has_claims:
            make, effect = warning, "no new pod with Neuron goes there"
        yield make(
            "nodes-with-counts-and-claims",
            f"{count_text(len(both), 'node gives', 'nodes give')} Neuron devices by counts and by claims: {effect}",
            advice="Keep the device plugin or AWS's DRA driver off each node (docs/claims.md)",
            objects=both,
        )

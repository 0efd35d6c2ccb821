"""
The annotations in which AWS's extension keeps what is used on a node: leftovers, or in contradiction to the pods.

This scheduler does not read them. The extension believes them, and after a restart they may be wrong (AWS's
troubleshooting page), so that pods stay pending or get devices in use. `neuron-scheduler usage-maps` prints the right
ones.
"""

from collections.abc import Iterator

from neuron_scheduler.commands.check.subjects.finding import Finding, note, warning
from neuron_scheduler.commands.check.subjects.known import EXTENDER
from neuron_scheduler.commands.check.subjects.snapshot import Snapshot, Unread
from neuron_scheduler.model.annotations import USAGE_MAPS
from neuron_scheduler.model.node import AnnotatedNode
from neuron_scheduler.model.wording import counted
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.usage_maps import usage_maps

REMOVE = f"kubectl annotate node --all {' '.join(f'{key}-' for key in USAGE_MAPS)}"
WRITE = "neuron-scheduler usage-maps"


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the nodes that have such annotations, and how these contradict the pods."""
    if isinstance(snapshot.nodes, Unread):
        return  # `nodes` says so
    having = sorted((seen for seen in snapshot.nodes if seen.usage_maps), key=lambda seen: seen.node.name)
    if not having:
        return
    wrong = [] if isinstance(snapshot.pods, Unread) else [text for seen in having for text in _wrong(snapshot, seen)]
    nodes = counted(len(having), "node")
    if not any(d.object.name == EXTENDER and d.replicas for d in snapshot.foreign):
        yield note(
            "usage-maps-left",
            f"{counted(len(having), 'node has', 'nodes have')} annotations of AWS's extension, which this scheduler"
            " does not read" + ("; some contradict the pods" if wrong else ""),
            advice="Remove them; before you go back to the extension, write them again (docs/migrating.md)",
            command=REMOVE,
            objects=wrong or [seen.node.name for seen in having],
        )
    elif wrong:
        yield warning(
            "usage-maps-stale",
            "AWS's extension believes annotations of nodes that contradict the pods there",
            advice="Stop the extension, run the commands that this one prints, and start it again",
            command=WRITE,
            objects=wrong,
        )
    else:
        yield note("usage-maps", f"AWS's extension keeps its annotations on {nodes}; they match the pods")


def _wrong(snapshot: Snapshot, seen: AnnotatedNode) -> Iterator[str]:
    """Yield how the annotations of a node differ from what its pods hold; nothing while that is unknown."""
    node_info = snapshot.cluster.node(seen.node.name)
    if node_info is None or node_info.machine is None or node_info.neuron_usage.unknown_holders:
        return
    held: CoreMask = node_info.machine.all_cores & ~node_info.neuron_usage.free
    for key, text in usage_maps(node_info.machine, held).items():
        kept = seen.usage_maps.get(key)
        if kept is not None and kept != text:
            yield f"{seen.node.name}: {key} has {_ids(kept)}, the pods hold {_ids(text)}"


def _ids(usage_map: str) -> str:
    """Return the ids that a map says are used, as far as it can be read."""
    words = usage_map.split(",")
    if set(words) - {"true", "false"}:
        return repr(usage_map[:40])
    return ",".join(str(number) for number, word in enumerate(words) if word == "true") or "none"

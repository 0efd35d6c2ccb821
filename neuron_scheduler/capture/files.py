"""
Reads a cluster from files: the output of `kubectl get nodes,pods,... -A -o json` (or yaml), or of `kubectl get --raw`.

The objects are decoded by the readers of the running process; kinds that the scheduler does not watch are skipped.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from neuron_scheduler.capture.collection import OPTIONAL_KINDS, Capture, Collection
from neuron_scheduler.capture.documents import Kind, content, objects
from neuron_scheduler.kube.objects.base import Decoded, Encoded, Malformed, Resource
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pod_groups import POD_GROUPS
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.telemetry.errors import ConfigurationError

COMMAND: Final = (
    "kubectl get nodes,pods,namespaces,services,replicationcontrollers,replicasets,statefulsets,"
    "poddisruptionbudgets,persistentvolumes,persistentvolumeclaims,storageclasses,csinodes,csidrivers,"
    "csistoragecapacities,volumeattachments -A -o json"
)
"""It writes a file with all that the scheduler watches."""


def from_files(paths: Sequence[str], *, profiles: Sequence[Profile] = ()) -> Capture:
    """Return the cluster that the files describe; `-` is standard input."""
    newest = max((os.stat(path).st_mtime for path in paths if os.path.isfile(path)), default=0.0)  # noqa: PTH113, PTH116 - no object is needed
    collection = Collection(taken=newest, profiles=profiles)
    kinds = {(each.group, each.kind): (each, collection.reader_of(each)) for each in collection.resources}
    for path in paths:
        _read(path, collection, kinds)
    _check(collection, paths)
    capture = collection.capture()
    return attrs.evolve(capture, notes=(*capture.notes, *_notes_on(capture)))


def _check(collection: Collection, paths: Sequence[str]) -> None:
    if not collection.has(NODES):
        raise ConfigurationError(f"{', '.join(paths)}: there is no node in it; write the file with `{COMMAND}`")
    lacks = (resource for resource in collection.resources if not collection.has(resource))
    missing = [resource.name for resource in lacks if resource not in OPTIONAL_KINDS]
    if PODS.name in missing:
        collection.note("the files have no pods, so every device looks free")
        missing.remove(PODS.name)
    if missing:
        collection.note(
            f"the files have no {', '.join(missing)}; if the cluster has some, answers do not consider them"
        )


def _notes_on(capture: Capture) -> Iterator[str]:
    """Yield what is missing of PodGroups, by API group, and of claims; `kubectl get` fails on what is not served."""
    groups = capture.cluster.groups
    for api_group in dict.fromkeys(resource.group for resource in POD_GROUPS):
        if any(key.dialect == api_group and not groups.group(key).least for key in groups):
            yield (
                f"pods name a PodGroup, and the files have none: which of them wait for others is not known; add the"
                f" output of `kubectl get podgroups.{api_group} -A -o json`"
            )
    if capture.cluster.claims is None and any(pod.claims for pod in capture.pods.values()):
        yield (
            "pods have claims on devices, and the files have none; add the output of"
            " `kubectl get resourceslices,deviceclasses,resourceclaims -A -o json`"
        )


def _read(path: str, collection: Collection, kinds: dict[Kind, tuple[Resource[Any], Resource[Any]]]) -> None:
    """Add the objects of a file to the collection; each kind has the resource that it is, and by which it is read."""
    known = 0
    for kind, item in objects(path, content(path)):
        if kind in kinds:
            resource, reader = kinds[kind]
            collection.add(resource, _decode(reader, item))
            known += 1
    if not known:
        raise ConfigurationError(f"{path} has no object that the scheduler reads; write it with `{COMMAND}`")


def _decode(resource: Resource[Any], item: Encoded) -> Decoded[Any]:
    """Return the object; a pod that does not say its namespace is malformed, because its name may not be its own."""
    decoded = resource.decode(item)
    if resource.kind == PODS.kind and decoded.value is not None and "/" not in decoded.key:
        node_name = decoded.value.node_name
        reason = "it has no metadata.namespace"
        return Decoded(decoded.key, decoded.uid, "", Malformed(resource.kind, decoded.key, reason, node_name=node_name))
    return decoded

"""
A pod template -> `PodSet`: the pod that a controller would make of it, read as the running process reads pods.

Does not guess: what only admission or a controller could add is named in a note.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs
import msgspec

from neuron_scheduler.explain.replicated import PodSet
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Malformed, Resource
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.objects.selectors import label_selector
from neuron_scheduler.kube.objects.storage import CLAIMS
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import PersistentVolumeClaim
from neuron_scheduler.model.workload import Workload
from neuron_scheduler.telemetry.line_formats import printable
from neuron_scheduler.workload_files.defaults import defaulted
from neuron_scheduler.workload_files.fields import Fields

T = TypeVar("T")

_LONGEST_POD_NAME: Final = 200


@attrs.frozen
class Controller:
    """
    What would own the pods.

    Attributes:
        labels: those that it adds to its pods.
    """

    api_version: str
    kind: str
    name: str
    labels: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def reference(self) -> dict[str, Any]:
        """The owner reference of its pods."""
        return {"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "controller": True}

    def workload(self, *, namespace: str, selector: object) -> Workload | None:
        """
        Return it as what selects pods; None if it has no selector.

        Raises:
            ValueError: the selector cannot be read.
        """
        if selector is None:
            return None
        selector = {"matchLabels": selector} if self.kind == "ReplicationController" else selector
        selects = label_selector(msgspec.convert(selector, wire.Selector))
        return Workload("", self.api_version, self.kind, namespace, self.name, selects)


def pod_set(
    fields: Fields,
    template: Fields,
    *,
    namespace: str,
    controller: Controller | None = None,
    count: int = 1,
    name: str = "",
    claims: Sequence[Mapping[str, Any]] = (),
) -> tuple[PodSet, tuple[str, ...]]:
    """
    Return the pods of a template, and notes.

    Args:
        fields: the object that the template is in.
        template: it has `metadata` and `spec`.
        namespace: if the object names none.
        controller: None for a pod without one.
        count: pods of one replica.
        name: of the part of a group.
        claims: `volumeClaimTemplates`.

    Raises:
        ConfigurationError: the pod cannot be read; the text names the field.
    """
    spec_fields = template.at("spec")
    if not spec_fields.objects("containers"):
        raise spec_fields.error(f"{spec_fields.path}.containers is missing or empty")
    pod_name = "-".join(filter(None, (fields.name[:_LONGEST_POD_NAME], name)))
    volumes = [*_volumes_of_claims(claims, pod_name), *spec_fields.objects("volumes")]
    metadata = _metadata(fields, template, controller)
    metadata |= {"name": pod_name, "namespace": fields.namespace or namespace}
    spec = {**defaulted(spec_fields.value), "volumes": volumes}
    pod = _read(fields, PODS, {"metadata": metadata, "spec": spec}, "its pod")
    own = [_claim(fields, pod, f"{pod_name}-{volume.get('name')}", template) for volume, template in _own(volumes)]
    own += [_claim(fields, pod, _name_of(claim, pod_name), claim) for claim in claims]
    return PodSet(attrs.evolve(pod, node_name=""), count, name, tuple(own)), tuple(_notes(spec_fields, pod))


def _metadata(fields: Fields, template: Fields, controller: Controller | None) -> dict[str, Any]:
    """Return the labels, annotations and owner that the pods would have."""
    said = template.value.get("metadata") or {}
    labels = said.get("labels") or {} if isinstance(said, Mapping) else None
    if not isinstance(said, Mapping) or not isinstance(labels, Mapping):
        raise fields.error("the metadata of its pods cannot be read")
    return {
        "labels": {**labels, **(controller.labels if controller else {})},
        "annotations": said.get("annotations"),
        "ownerReferences": [controller.reference] if controller else None,
    }


def _read(fields: Fields, resource: Resource[T], made: Mapping[str, Any], what: str) -> T:
    """
    Return an object as the running process reads it.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        value = resource.decode(msgspec.json.encode(made)).value
    except (TypeError, ValueError, RecursionError) as error:  # a YAML value that JSON has not
        raise fields.error(f"{what} cannot be read: {error}") from None
    if value is None or isinstance(value, Malformed):
        raise fields.error(f"{what} cannot be read: {'it has ended' if value is None else value.reason}")
    return value


def _volumes_of_claims(claims: Sequence[Mapping[str, Any]], pod_name: str) -> Iterator[dict[str, Any]]:
    """Yield the volumes that a StatefulSet adds for its claims."""
    for claim in claims:
        name = _name_of(claim, pod_name)
        yield {"name": name, "persistentVolumeClaim": {"claimName": name}}


def _name_of(claim: Mapping[str, Any], pod_name: str) -> str:
    metadata = claim.get("metadata")
    return f"{metadata.get('name') if isinstance(metadata, Mapping) else 'claim'}-{pod_name}"


def _own(volumes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the generic ephemeral volumes, each with the template of its claim."""
    for volume in volumes:
        ephemeral = volume.get("ephemeral")
        if isinstance(ephemeral, Mapping) and isinstance(ephemeral.get("volumeClaimTemplate"), Mapping):
            yield volume, ephemeral["volumeClaimTemplate"]


def _claim(fields: Fields, pod: Pod, name: str, template: Mapping[str, Any]) -> PersistentVolumeClaim:
    made = {"metadata": {"name": name, "namespace": pod.namespace}, "spec": template.get("spec")}
    return _read(fields, CLAIMS, made, f"the claim {name}")


def _notes(spec: Fields, pod: Pod) -> Iterator[str]:
    name = spec.value.get("priorityClassName")
    if isinstance(name, str) and name and "priority" not in spec.value:
        yield f"The priority of the class {printable(name)} is not known here; 0 is used."
    if spec.value.get("nodeName"):
        yield f"spec.nodeName of {printable(pod.name)} is not considered: no scheduler would decide about the pod."

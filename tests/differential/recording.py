"""
Worlds with kube-scheduler's answers, as one line of JSON each.

Only the fields that a scheduler reads are kept, so a few hundred scenarios are small enough for the repository.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from tests.differential.vocabulary import Object
from tests.differential.world import Answer, World

FOLDER: Final = Path(__file__).parent / "fixtures"

_METADATA_DROPPED: Final = ("managedFields", "resourceVersion", "creationTimestamp", "generation")
_POD_DROPPED: Final = (
    "dnsPolicy",
    "enableServiceLinks",
    "preemptionPolicy",
    "restartPolicy",
    "schedulerName",
    "securityContext",
    "terminationGracePeriodSeconds",
)
_POD_STATUS_KEPT: Final = (
    "allocatedResources",
    "conditions",
    "containerStatuses",
    "initContainerStatuses",
    "nominatedNodeName",
    "phase",
    "resources",
)
_CONTAINER_DROPPED: Final = ("image", "imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy")


@attrs.frozen
class Recording:
    """
    A world and kube-scheduler's answers for its pending pods.

    Attributes:
        name: of the world; its nodes and pods begin with it.
        answers: one for each of `world.pending`.
        release: of kube-scheduler, such as `1.37`.
    """

    name: str
    world: World
    answers: tuple[Answer, ...]
    release: str


def compact(manifest: Object) -> Object:
    """Return an object without fields that no scheduler reads."""
    kept = {**manifest, "metadata": _without(manifest["metadata"], _METADATA_DROPPED)}
    match manifest["kind"]:
        case "Pod":
            kept["spec"] = _pod_spec(manifest["spec"])
            kept["status"] = _only(kept.get("status", {}), _POD_STATUS_KEPT)
        case "Node":
            kept["status"] = _only(manifest["status"], ("allocatable", "declaredFeatures"))
    return kept


def write(path: Path, recordings: Iterable[Recording]) -> None:
    """Write recordings, one a line."""
    lines = []
    for recording in recordings:
        world = attrs.asdict(recording.world)
        cases = [
            {"pod": pod, "feasible": answer.feasible, "text": answer.text}
            for pod, answer in zip(world.pop("pending"), recording.answers, strict=True)
        ]
        lines.append(
            json.dumps(
                {"name": recording.name, "release": recording.release, **world, "cases": cases}, separators=(",", ":")
            )
        )
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def read(path: Path) -> Iterator[Recording]:
    for line in path.read_text().splitlines():
        record = json.loads(line)
        cases = record["cases"]
        answers = tuple(Answer(tuple(case["feasible"]), case["text"]) for case in cases)
        parts = {part: tuple(record[part]) for part in ("beside", "nodes", "bound", "nominated")}
        pending = tuple(case["pod"] for case in cases)
        yield Recording(record["name"], World(**parts, pending=pending), answers, record["release"])


def _pod_spec(spec: Object) -> Object:
    kept = _without(spec, _POD_DROPPED)
    for group in ("containers", "initContainers"):
        if group in kept:
            kept[group] = [_without(container, _CONTAINER_DROPPED) for container in kept[group]]
    return kept


def _without(fields: Object, names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names and value not in ({}, [])}


def _only(fields: Object, names: Sequence[str]) -> dict[str, Any]:
    return {name: fields[name] for name in names if fields.get(name)}

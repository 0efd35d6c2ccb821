"""
A small cluster with pending pods, and a scheduler's answer for each of them.

Everything is an API object as a dictionary: first as it is generated, then as the API server stored it. Pure: all draws
come from the `Random` that is passed in, which may be hypothesis'.
"""

from collections.abc import Mapping
from random import Random
from typing import Final

import attrs

from tests.differential.nodes import nodes
from tests.differential.pods import bound_pod, nominated_pod, pending_pod
from tests.differential.storage import ephemeral_claims, storage
from tests.differential.vocabulary import NAMESPACES, VOCABULARIES, Object, Vocabulary, chance, several, sometimes

FEASIBLE: Final = "node(s) would have done"
"""The reason of both sides for nodes that no filter refuses."""

PENDING: Final = 20
"""Scenarios in each world."""


@attrs.frozen
class World:
    """
    One cluster.

    Attributes:
        beside: the other objects: namespaces, volumes.
        bound: pods on nodes; with a `deletionTimestamp` where they are being deleted.
        nominated: pods that wait for victims on the node that their status names.
        pending: one scenario each; none of them is ever placed.
    """

    beside: tuple[Object, ...]
    nodes: tuple[Object, ...]
    bound: tuple[Object, ...]
    nominated: tuple[Object, ...]
    pending: tuple[Object, ...]


@attrs.frozen
class Answer:
    """
    A scheduler's answer for a pod.

    Attributes:
        feasible: names of the nodes that no filter refuses, in alphabetical order.
        text: the message of the PodScheduled condition if these nodes are refused as well (`FEASIBLE`).
    """

    feasible: tuple[str, ...]
    text: str


def numbered_world(number: int, vocabulary_name: str) -> World:
    """Return the world of that number: the same on every machine, until the generator is changed."""
    return world(Random(f"{number} {vocabulary_name}"), VOCABULARIES[vocabulary_name], name=f"w{number}")


def world(dice: Random, vocabulary: Vocabulary, *, name: str) -> World:
    """Return a world; the same draws give the same one. All names in it begin with its name."""
    prefix = f"{name}-"
    machines = nodes(dice, prefix, quiet=vocabulary.quiet)
    names = [node["metadata"]["name"] for node in machines]
    bound = [
        bound_pod(dice, f"{prefix}b{number}", min(dice.choice(names), dice.choice(names)), vocabulary, claims=prefix)
        for number in range(dice.randint(0, 30 if vocabulary.quiet else 12))
    ]
    for pod in bound:
        if chance(dice, 0.08):
            pod["metadata"]["deletionTimestamp"] = "now"
    awaited = sometimes(dice, 0.3, lambda: several(dice, 3, lambda: dice.choice(names))) or []
    nominated = [nominated_pod(dice, f"{prefix}w{number}", node, vocabulary) for number, node in enumerate(awaited)]
    pending = [pending_pod(dice, f"{prefix}p{number}", names, vocabulary, claims=prefix) for number in range(PENDING)]
    beside = [*storage(dice, prefix, names), *ephemeral_claims(dice, pending)] if vocabulary.volumes else []
    if chance(dice, 0.1):  # pods may be bound to nodes that do not exist
        machines = machines[1:] if chance(dice, 0.7) else []
    return World((*namespaces(), *beside), tuple(machines), tuple(bound), tuple(nominated), tuple(pending))


def namespaces() -> list[Object]:
    """Return the namespaces that pods may be in, labelled as the API server labels them."""
    return [_namespace(name, labels) for name, labels in NAMESPACES.items()]


def _namespace(name: str, labels: Mapping[str, str]) -> Object:
    own = {"kubernetes.io/metadata.name": name}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {**labels, **own}}}

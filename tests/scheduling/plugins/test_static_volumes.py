"""Which nodes have volumes for all claims of a pod, and which claim gets which, as kube-scheduler would choose."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from neuron_scheduler.model.volumes import PersistentVolume, PersistentVolumeClaim
from neuron_scheduler.scheduling.plugins import static_volumes
from neuron_scheduler.scheduling.plugins.static_volumes import assign_volumes, nodes_served
from tests.support.builders import GI, pod
from tests.support.storage import claim, host, stored, volume, zone, zoned
from tests.support.thoroughness import examples

NODES = zoned(a="x", b="x", c="y", d="y")
RWO, RWX = "ReadWriteOnce", "ReadWriteMany"
SELECTORS = [
    None,
    *[LabelSelector((Requirement("disk", Operator.IN, values),)) for values in (("ssd",), ("hdd",), ("hdd", "ssd"))],
    LabelSelector((Requirement("disk", Operator.EXISTS),)),
]


def some_claims(dice: Random) -> list[PersistentVolumeClaim]:
    """Return claims, in half of all cases alike but for their sizes."""
    fields: list[dict[str, Any]] = [
        {
            "class_name": dice.choice(["local", "local", "gp3"]),
            "access_modes": dice.choice([(RWO,), (RWX,)]),
            "selector": dice.choice(SELECTORS),
        }
        for _ in range(dice.choice([1, 1, 2, 3]))
    ]
    return [claim(f"c{n}", request=dice.randint(1, 4) * GI, **dice.choice(fields)) for n in range(dice.randint(1, 5))]


def some_volume(dice: Random, name: str) -> PersistentVolume:
    return volume(
        name,
        on=dice.choice([None, *[zone(z) for z in "xy"], *[host(h) for h in "aabbccdd"], host("a", "c")]),
        of=dice.choice([*[""] * 12, "c0"]),
        class_name=dice.choice(["local", "local", "local", "gp3"]),
        capacity=dice.randint(1, 5) * GI,
        access_modes=dice.choice([(RWO,), (RWO, RWX), (RWO, RWX)]),
        labels=dice.choice([{}, {"disk": "ssd"}, {"disk": "hdd"}]),
    )


def chosen(
    claims: Sequence[PersistentVolumeClaim], volumes: Sequence[PersistentVolume], node: Node
) -> dict[str, str | None]:
    """Return the name of the volume that each claim gets, as in `findMatchingVolumes`."""
    taken: dict[str, str | None] = {}
    for each in sorted(claims, key=lambda each: each.request):
        serving = sorted((v for v in volumes if v.may_serve(each)), key=lambda v: (v.capacity, v.name))
        reserved = sorted((v for v in serving if v.claim is not None), key=lambda v: v.name)
        there = [
            v.name
            for v in reserved[:1] or serving
            if v.name not in taken.values()
            and (v.required_terms is None or any(t.matches(node.labels, "") for t in v.required_terms))
        ]
        taken[each.name] = there[0] if there else None
    return taken


@pytest.mark.parametrize("seed", range(examples(400)))
def test_claims_get_what_kube_scheduler_would_choose(seed: int) -> None:
    """
    On each node each claim, the smallest first, gets the smallest volume that is left.

    For a claim without an answer there is that of one of its class, no smaller and with a volume on no other node.
    """
    dice = Random(seed)
    claims, volumes = some_claims(dice), [some_volume(dice, f"v{n}") for n in range(dice.randint(0, 16))]
    cluster: Cluster = stored(NODES, *claims, *volumes)
    served = {each.name: nodes for each, nodes in nodes_served(cluster.view, claims, cluster.view.live)[0]}
    wants = [chosen(claims, volumes, node) for node in NODES]
    for each in claims:
        there = NodeSet(sum(1 << slot for slot, want in enumerate(wants) if want[each.name] is not None))
        assert there == served.get(each.name, there)
        assert any(
            other.class_name == each.class_name and other.request >= each.request and not served[other.name] & ~there
            for other in claims
            if other.name in served
        )
    for node, want in zip(NODES, wants, strict=True):
        got = assign_volumes(cluster.view, pod(), node.name, claims)
        assert {each.name: kept and kept.name for each, kept in got} == want


class Labels(dict[str, str]):
    """Labels of volumes, which count how often one is read."""

    reads = 0

    def get(self, *key: Any) -> Any:
        Labels.reads += 1
        return super().get(*key)


@pytest.mark.parametrize("requirements", [1, 12])
@pytest.mark.parametrize("number", [12, 60])
def test_many_volumes_of_a_node_take_no_longer(monkeypatch: pytest.MonkeyPatch, number: int, requirements: int) -> None:
    """Fewer nodes are tried then, one at least; on a node, claims that ask for the same look at a volume once."""
    monkeypatch.setattr(static_volumes, "_MOST_TRIED", 1000)
    ssd = LabelSelector((Requirement("ssd", Operator.EXISTS),) * requirements)
    nodes = zoned(**{f"n{n}": "x" for n in range(20)})
    claims = [claim(f"c{n}", selector=ssd if n % 2 else None) for n in range(12)]
    names = [(node.name, n) for node in nodes for n in range(number)]
    cluster = stored(
        nodes,
        *claims,
        *[volume(f"{a}-{n:02}", on=host(a), labels=Labels(ssd="") if n < 6 else Labels()) for a, n in names],
    )
    nodes_served(cluster.view, claims, cluster.view.live)
    Labels.reads = 0
    _, unknown = nodes_served(cluster.view, claims, cluster.view.live)
    assert 0 < Labels.reads <= 1000 + requirements * number
    assert unknown.bit_count() < len(nodes)

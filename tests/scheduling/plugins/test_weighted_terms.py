"""Preferred terms of several plugins are one sum, in which each plugin is normalised on its own."""

import pytest

from neuron_scheduler.model.node import ZONE_LABEL
from neuron_scheduler.model.selectors import (
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    PreferredTerm,
    Requirement,
    SpreadConstraint,
)
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, schedule

WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
SPREAD = SpreadConstraint(ZONE_LABEL, 1, hard=False, selector=WEB)


def near(weight: int, zone: str) -> PreferredTerm:
    return PreferredTerm(weight, NodeSelectorTerm((Requirement(ZONE_LABEL, Operator.IN, (zone,)),)))


@pytest.mark.parametrize(
    ("terms", "counts", "want"),
    [
        pytest.param((), (1, 2, 3), "x", id="spread alone: x has a share of 1"),
        pytest.param((near(1, "z"),), (1, 2, 3), "z", id="affinity 1 for z, spread 1/3: 4/3 beats 1"),
        pytest.param((near(100, "z"),), (1, 2, 3), "z", id="the weight does not matter where there is one term"),
        pytest.param((near(50, "z"), near(100, "y")), (1, 2, 3), "y", id="y: 1 + 2/3, z: 1/2 + 1/3"),
        pytest.param((near(10, "z"), near(100, "x")), (9, 9, 0), "z", id="x: 1 + 0, z: 1/10 + 1"),
    ],
)
def test_shares(terms: tuple[PreferredTerm, ...], counts: tuple[int, int, int], want: str) -> None:
    """Node affinity counts by its share of the highest sum, spread as upstream normalises it."""
    nodes = [node(zone, labels={ZONE_LABEL: zone}, created=i) for i, zone in enumerate("xyz")]
    there = [
        pod(f"{zone}{i}", labels={"app": "web"}, on=zone)
        for zone, count in zip("xyz", counts, strict=True)
        for i in range(count)
    ]
    asked = pod(preferred_terms=terms, spread=(SPREAD,))
    assert schedule(cluster_of(nodes, there), asked) == (want, ())

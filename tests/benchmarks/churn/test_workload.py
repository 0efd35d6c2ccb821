"""A workload is fixed by its seed, has exactly its load, and has no request that fits no node."""

import random

import pytest

from benchmarks.churn.workload import OPENB, SCENARIOS, Demand, Workload, nodes_of, serves, workload
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL

PODS = 500


def made(scenario: str = "mixed", *, load: float = 0.9, seed: int = 1, demand: Demand | None = None) -> Workload:
    return workload(SCENARIOS[scenario], load=load, seed=seed, pods=PODS, demand=demand)


def test_a_seed_decides_everything() -> None:
    """The same seed gives equal workloads; another seed gives another order."""
    assert made() == made()
    assert made() != made(seed=2)


@pytest.mark.parametrize("load", [0.85, 1.0])
def test_the_load_is_exact(load: float) -> None:
    """Requested devices times seconds are the load's share of the fleet's; at second 0 the share is the same."""
    events = made(load=load)
    asked = sum(arrival.size * arrival.lifetime for arrival in events.arrivals if arrival.at)
    assert asked / (events.capacity * events.end) == pytest.approx(load)
    assert 0 <= sum(arrival.size for arrival in events.arrivals if not arrival.at) - load * events.capacity < 16
    assert all(arrival.at <= events.end for arrival in events.arrivals)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_pod_fits_some_empty_node(scenario: str) -> None:
    """Cpu and memory included; a pod that names a type fits that."""
    nodes = {node.instance_type: node for node in nodes_of(SCENARIOS[scenario])}
    for arrival in made(scenario, demand=Demand(cpu=0.875, memory=0.875)).arrivals:
        wanted = arrival.pod.constraints.node_selector.get(INSTANCE_TYPE_LABEL)
        request = arrival.pod.neuron
        assert request is not None
        assert request.total * arrival.members == arrival.size
        assert any(
            serves(node, request)
            and all(node.allocatable[name] >= amount for name, amount in arrival.pod.requests.items())
            for kind, node in nodes.items()
            if wanted in (None, kind)
        )


def test_lifetimes_have_the_mean_of_the_distribution() -> None:
    """So the load of a run is exact, with any seed."""
    dealt = OPENB.stratified(20_000, random.Random(1))
    assert sum(dealt) / len(dealt) == pytest.approx(OPENB.mean, rel=0.01)
    assert sorted(dealt) == sorted(OPENB.stratified(20_000, random.Random(2)))
    assert list(OPENB.knots) == sorted(OPENB.knots)

"""A workload is fixed by its seed, has exactly its load, and has no request that fits no node."""

from collections import Counter

import pytest

from benchmarks.churn.workload import SCENARIOS, Demand, Workload, nodes_of, serves, workload
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL
from neuron_scheduler.model.resources import CPU, MEMORY

PODS = 500


def made(scenario: str = "mixed", *, load: float = 0.9, seed: int = 1, demand: Demand | None = None) -> Workload:
    """Return a short workload."""
    return workload(SCENARIOS[scenario], load=load, seed=seed, pods=PODS, demand=demand)


def test_a_seed_decides_everything() -> None:
    """The same seed gives equal workloads; another seed gives another order."""
    assert made() == made()
    assert made() != made(seed=2)


def test_seeds_differ_in_order_only() -> None:
    """Every seed brings as many pods of each size while it runs."""
    first, second = (Counter(a.size for a in made(seed=seed).arrivals if a.at) for seed in (1, 2))
    assert first == second
    assert first.total() == PODS


@pytest.mark.parametrize("load", [0.85, 1.0])
def test_the_load_is_exact(load: float) -> None:
    """Requested devices times seconds are the load's share of the fleet's; at second 0 the share is the same."""
    events = made(load=load)
    asked = sum(arrival.size * arrival.lifetime for arrival in events.arrivals if arrival.at)
    assert asked / (events.capacity * events.end) == pytest.approx(load)
    assert 0 <= sum(arrival.size for arrival in events.arrivals if not arrival.at) - load * events.capacity < 16
    assert all(arrival.at <= events.end for arrival in events.arrivals)


def test_large_pods_are_few() -> None:
    """Shares are shares of the work, so of two sizes with equal work the larger has fewer pods."""
    counts = Counter(arrival.size for arrival in made("ring").arrivals if arrival.at)
    assert counts[1] == pytest.approx(12 * counts[12], abs=12)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_pod_fits_some_empty_node(scenario: str) -> None:
    """Cpu and memory included; a pod that names a type fits that."""
    nodes = {node.instance_type: node for node in nodes_of(SCENARIOS[scenario])}
    for arrival in made(scenario, demand=Demand(cpu=0.875, memory=0.875)).arrivals:
        wanted = arrival.pod.constraints.node_selector.get(INSTANCE_TYPE_LABEL)
        request = arrival.pod.neuron
        assert request is not None
        assert request.total == arrival.size
        assert any(
            serves(node, request)
            and all(node.allocatable[name] >= amount for name, amount in arrival.pod.requests.items())
            for kind, node in nodes.items()
            if wanted in (None, kind)
        )


def test_pods_are_pinned_in_proportion_to_the_devices() -> None:
    """A size that two types serve goes to each in proportion to its devices, and to no other type."""
    ones = Counter(
        arrival.pod.constraints.node_selector[INSTANCE_TYPE_LABEL]
        for arrival in workload(SCENARIOS["pinned"], load=0.9, seed=1, pods=4_000).arrivals
        if arrival.size == 4
    )
    assert set(ones) == {"trn1.32xlarge", "inf2.48xlarge"}
    assert ones["trn1.32xlarge"] / ones.total() == pytest.approx(16 / 28, abs=0.05)


def test_cpu_and_memory_have_the_given_share() -> None:
    """Without a demand there is none; with one, the sum over all pods is that share of the amount for their devices."""
    assert not any({CPU, MEMORY} & arrival.pod.requests.keys() for arrival in made("torus").arrivals)
    events = workload(SCENARIOS["torus"], load=0.9, seed=1, pods=4_000, demand=Demand(cpu=0.875))
    node = events.nodes[0]
    silicon = sum(arrival.size for arrival in events.arrivals) / 16
    cpu = sum(arrival.pod.requests[CPU] for arrival in events.arrivals) / node.allocatable[CPU]
    assert cpu / silicon == pytest.approx(0.875, abs=0.01)
    assert not any(MEMORY in arrival.pod.requests for arrival in events.arrivals)

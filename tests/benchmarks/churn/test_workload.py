"""What comes is decided by the seed, has the load it says, and asks for nothing that no node could give."""

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
    """Two readings of a seed are equal, to the last pod; another seed is another order."""
    assert made() == made()
    assert made() != made(seed=2)


def test_seeds_differ_in_order_only() -> None:
    """Every seed brings as many pods of each size while it runs."""
    one, other = (Counter(a.size for a in made(seed=seed).arrivals if a.at) for seed in (1, 2))
    assert one == other
    assert one.total() == PODS


@pytest.mark.parametrize("load", [0.85, 1.0])
def test_the_load_is_exact(load: float) -> None:
    """Silicon times seconds asked for is the load's share of what there is; as much stands there at second 0."""
    found = made(load=load)
    asked = sum(arrival.size * arrival.lifetime for arrival in found.arrivals if arrival.at)
    assert asked / (found.capacity * found.end) == pytest.approx(load)
    assert 0 <= sum(arrival.size for arrival in found.arrivals if not arrival.at) - load * found.capacity < 16
    assert all(arrival.at <= found.end for arrival in found.arrivals)


def test_large_pods_are_few() -> None:
    """A size's share of the work counts, so that of two sizes with equal work the larger has fewer pods."""
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


def test_pods_are_pinned_in_proportion_to_the_silicon() -> None:
    """A size that two types serve goes to each as often as its share of the devices says, and to no other."""
    ones = Counter(
        arrival.pod.constraints.node_selector[INSTANCE_TYPE_LABEL]
        for arrival in workload(SCENARIOS["pinned"], load=0.9, seed=1, pods=4_000).arrivals
        if arrival.size == 4
    )
    assert set(ones) == {"trn1.32xlarge", "inf2.48xlarge"}
    assert ones["trn1.32xlarge"] / ones.total() == pytest.approx(16 / 28, abs=0.05)


def test_cpu_and_memory_are_asked_for_by_the_share_that_is_said() -> None:
    """Without a demand there is none; with one, the sum over all pods is that share of what goes with the silicon."""
    assert not any({CPU, MEMORY} & arrival.pod.requests.keys() for arrival in made("torus").arrivals)
    found = workload(SCENARIOS["torus"], load=0.9, seed=1, pods=4_000, demand=Demand(cpu=0.875))
    node = found.nodes[0]
    silicon = sum(arrival.size for arrival in found.arrivals) / 16
    cpu = sum(arrival.pod.requests[CPU] for arrival in found.arrivals) / node.allocatable[CPU]
    assert cpu / silicon == pytest.approx(0.875, abs=0.01)
    assert not any(MEMORY in arrival.pod.requests for arrival in found.arrivals)

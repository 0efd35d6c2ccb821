"""A run in virtual time: as computed by hand; no core has two pods, no pod sleeps that would fit."""

import pytest

from benchmarks.churn.contenders import CONTENDERS
from benchmarks.churn.simulation import Simulation
from benchmarks.churn.workload import SCENARIOS, Arrival, Workload, workload
from benchmarks.placement import waits_of
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError, schedule_pod
from tests.support import builders


def simulated(workload: Workload, contender: str = "ours") -> Simulation:
    """Return a run before its start."""
    chosen = CONTENDERS[contender]
    return Simulation(chosen.setting(workload), chosen.profile(workload))


def by_hand(*pods: tuple[float, int, float], end: float = 400.0) -> Workload:
    """Return pods (second of arrival, devices, lifetime) that come to a single trn1.32xlarge."""
    arrivals = tuple(
        Arrival(at, builders.pod(f"p{i}", devices=size, scheduler_name="my-scheduler"), size, lifetime)
        for i, (at, size, lifetime) in enumerate(pods)
    )
    return Workload((builders.node("n", "trn1.32xlarge"),), 16, arrivals, {}, end)


WAITING = by_hand((100, 16, 100), (110, 16, 50), (120, 8, 30), (390, 16, 100), (395, 16, 1))
"""The second waits for the first to end at 200, the third for the second at 250; the last finds no place by 400."""


def test_a_run_equals_one_computed_by_hand() -> None:
    """Times of placements, devices in use after the warm-up, waits, all exact."""
    run = simulated(WAITING)
    run.run()
    assert run.placed_at == {"uid-p0": 100, "uid-p1": 200, "uid-p2": 250, "uid-p3": 390}
    assert run.utilisation == pytest.approx((100 * 16 + 50 * 16 + 30 * 8 + 10 * 16) / (300 * 16))
    waits = waits_of(run)
    assert waits[16].pods == 4
    assert waits[16].mean == pytest.approx((0 + 90 + 0 + 5) / 4)
    assert waits[16].unplaced == 0.25
    assert waits[8].mean == 130
    assert waits[0].pods == 5


def short(scenario: str, seed: int = 1, load: float = 1.0, pods: int = 200) -> Workload:
    return workload(SCENARIOS[scenario], load=load, seed=seed, pods=pods)


@pytest.mark.parametrize("scenario", ["torus", "cores", "jobs"])
def test_no_core_has_two_holders_and_none_is_forgotten(scenario: str) -> None:
    """At every moment the cores of a node's pods are disjoint, and their sum is the number in use, by whole jobs."""
    run = simulated(short(scenario))
    for _ in run.steps():
        used = 0
        for state in run.cluster.view.rows():
            masks = [int(pod_info.cores or NO_CORES) for pod_info in state.pod_infos.values()]
            assert sum(core.bit_count() for core in masks) == sum(masks).bit_count()
            used += sum(t.pod.neuron.total for t in state.pod_infos.values() if t.pod.neuron is not None)
        assert run.used == used
    assert run.placed_at


@pytest.mark.parametrize(("scenario", "contender"), [("mixed", "ours"), ("mixed", "pooled")])
def test_no_pod_waits_that_has_a_place(scenario: str, contender: str) -> None:
    """At every moment each waiting pod would be refused if it were tried: hints, backoff and clock lose none."""
    run, waited = simulated(short(scenario), contender), 0
    for _ in run.steps():
        for waiting in run.queue.first(1_000):
            waited += 1
            assert isinstance(schedule_pod(run.cluster, waiting, run.profile), FitError)
    assert waited


def test_by_claims_pods_get_what_they_get_by_counts() -> None:
    """The same devices of the same nodes, at the same times; with the first that fit, whole nodes are rarer."""
    runs = {name: simulated(short("torus"), name) for name in ("ours", "claims", "first")}
    places = {name: _places(run) for name, run in runs.items()}
    assert len(places["ours"]) > 200
    assert places["claims"] == places["ours"]
    assert runs["claims"].placed_at == runs["ours"].placed_at
    waits = {name: waits_of(run) for name, run in runs.items()}
    assert waits["first"][16].mean > waits["claims"][16].mean


def _places(run: Simulation) -> dict[str, tuple[str, list[int]]]:
    """Run it, and return the node of each pod, and its devices."""
    places = dict[str, tuple[str, list[int]]]()
    for _ in run.steps():
        for row in run.cluster.view.rows():
            assert row.machine is not None
            for uid, pod_info in row.pod_infos.items():
                cores, width = int(pod_info.cores or NO_CORES), row.machine.cores_per_device
                places.setdefault(uid, (row.node.name, [i for i in range(16) if cores >> i * width & 1]))
    return places

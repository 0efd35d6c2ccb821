"""The matrix has all runs of the benchmark; subsets of it can be requested."""

from collections import Counter

from benchmarks.contest.matrix import SIZES, cells, estimate
from benchmarks.contest.workloads import WORKLOADS
from tests.benchmarks.runs import run


def test_all_workloads_run_with_5000_nodes_and_three_with_other_numbers() -> None:
    """Ours takes part in each of them."""
    ours = Counter(cell.nodes for cell in cells(nodes=SIZES, rounds=1) if cell.contender == "ours")
    assert ours == {1_000: 3, 5_000: len(WORKLOADS), 15_000: 3}


def test_the_extender_runs_on_1_4_8_16_devices_only() -> None:
    """A requested workload runs with every number of nodes."""
    with_extender = cells(nodes=SIZES, rounds=1, contenders=["kube-scheduler with extender"])
    assert {cell.workload for cell in with_extender} == {"mix"}
    assert cells(nodes=[10], rounds=1, workloads=["unlike"], contenders=["kube-scheduler with extender"]) == []


def test_contenders_alternate_within_a_workload() -> None:
    """A drift of the machine affects all of them."""
    order = cells(nodes=[10], rounds=2, workloads=["churn"])
    assert [(cell.round, cell.contender) for cell in order] == [
        (0, "ours"),
        (0, "kube-scheduler"),
        (1, "ours"),
        (1, "kube-scheduler"),
    ]


def test_one_round_of_everything_takes_less_than_40_minutes() -> None:
    """By the rates that are usual on two cores."""
    assert 600 < estimate(cells(nodes=SIZES, rounds=1), 3_000) < 2_400


def test_no_two_pods_of_a_workload_share_a_name_and_some_can_be_bound() -> None:
    """For any number of pods."""
    for name, workload in WORKLOADS.items():
        names = {pod["metadata"]["name"] for pod in workload.manifests(60)}
        assert len(names) == workload.count(60), name
        assert 0 < workload.bindable(60) <= workload.count(60), name


def test_no_two_requests_of_unlike_pods_are_alike() -> None:
    """Neither cpu nor memory."""
    resources = [pod["spec"]["containers"][0]["resources"] for pod in WORKLOADS["unlike"].manifests(3_000)]
    for resource in ("cpu", "memory"):
        assert len({each["requests"][resource] for each in resources}) == 3_000


def test_a_record_names_a_cell_of_the_matrix() -> None:
    """So a recorded run is found again."""
    assert run(nodes=5_000).cell in cells(nodes=SIZES, rounds=1)

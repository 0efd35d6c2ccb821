"""The matrix has all runs of the benchmark; subsets of it can be requested."""

from benchmarks.contest.matrix import cells
from benchmarks.contest.workloads import WORKLOADS


def test_contenders_alternate_within_a_workload() -> None:
    """A drift of the machine affects all of them."""
    order = cells(nodes=[10], rounds=2, workloads=["churn"])
    assert [(cell.round, cell.contender) for cell in order] == [
        (0, "ours"),
        (0, "kube-scheduler"),
        (1, "ours"),
        (1, "kube-scheduler"),
    ]


def test_no_two_pods_of_a_workload_share_a_name_and_some_can_be_bound() -> None:
    """For any number of pods."""
    for name, workload in WORKLOADS.items():
        names = {pod["metadata"]["name"] for pod in workload.manifests(60)}
        assert len(names) == workload.count(60), name
        assert 0 < workload.bindable(60) <= workload.count(60), name

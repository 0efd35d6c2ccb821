"""A history is written from events of a watch, and says what must not happen."""

from typing import Any

import pytest

from benchmarks.takeover.history import History, longest_gap
from neuron_scheduler.neuron.catalog import Machine
from tests.support.builders import machine

TRN1 = machine("trn1.32xlarge")


def bound(name: str, ids: str, *, count: int, node: str = "n", leader: str = "a", unit: str = "neuron") -> Any:
    """Return a pod with a node, as the API server sends it."""
    limits = {f"aws.amazon.com/{unit}": str(count)}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "annotations": {"AWS_NEURON_IDS": ids, "neuron-scheduler/leader": leader},
        },
        "spec": {"nodeName": node, "containers": [{"resources": {"limits": limits}}]},
    }


def always_trn1(_node: str) -> Machine:
    """Return the machine of every node."""
    return TRN1


def history(*pods: Any) -> History:
    """Return a history in which these pods were bound, one a second."""
    seen = History(always_trn1)
    for at, pod in enumerate(pods):
        seen.note("MODIFIED", pod, float(at))
    return seen


def test_a_pod_is_bound_once_however_often_it_changes() -> None:
    """Its time is that of the first event with a node; one without a node is no Binding."""
    seen = history(bound("p", "0", count=1), bound("p", "0", count=1))
    waiting = bound("q", "", count=1)
    del waiting["spec"]["nodeName"]
    seen.note("ADDED", waiting, 5.0)
    assert (seen.total, [pod.at for pod in seen.bound.values()], seen.wrong) == (1, [0.0], [])


@pytest.mark.parametrize(
    ("pods", "says"),
    [
        ([bound("p", "0", count=1), bound("p", "1", count=1)], "was bound twice"),
        ([bound("p", "0", count=1), bound("p", "0", count=1, node="m")], "was bound twice"),
        ([bound("p", "0,1,2,3", count=4), bound("q", "3", count=1)], "that another pod has"),
        ([bound("p", "0", count=1), bound("q", "1", count=1, unit="neuroncore")], "that another pod has"),
        ([bound("p", "1,2,3,4", count=4)], "no legal set"),
        ([bound("p", "", count=1)], "no legal set"),
    ],
)
def test_what_must_not_happen_is_named(pods: list[Any], says: str) -> None:
    """A device of trn1 has two cores, which other pods may ask for one by one."""
    (sentence,) = history(*pods).wrong
    assert says in sentence


def test_a_core_is_free_again_when_its_pod_is_gone() -> None:
    """A deletion counts once, and not for a pod that never had a node."""
    seen = history(bound("p", "0", count=1))
    for _ in range(2):
        seen.note("DELETED", bound("p", "0", count=1), 1.0)
    seen.note("DELETED", bound("stranger", "1", count=1), 1.0)
    seen.note("MODIFIED", bound("q", "0", count=1), 2.0)
    assert (seen.wrong, seen.held("n"), set(seen.bound)) == ([], 0b11, {"uid-p", "uid-q"})


@pytest.mark.parametrize(
    ("created", "bindings", "longest"),
    [
        ({"a": 0.0, "b": 1.0}, {"a": 0.5, "b": 4.0}, 3.0),  # b waited since 1, the last Binding was at 0.5
        ({"a": 0.0, "b": 0.0}, {"a": 0.5, "b": 4.0}, 3.5),
        ({"a": 0.0, "b": 0.0, "c": 3.9}, {"a": 0.5, "c": 4.0, "b": 4.1}, 3.5),  # b waited while c was bound
        ({"a": 0.0, "b": 9.0}, {"a": 0.5, "b": 9.1}, 0.5),  # nobody waited in between
        ({"a": 0.0}, {}, 0.0),
    ],
)
def test_a_gap_counts_only_while_a_pod_waits(
    created: dict[str, float], bindings: dict[str, float], longest: float
) -> None:
    """The longest time without a Binding, from the last one or from the arrival of the first pod that waits."""
    assert longest_gap(created, bindings) == pytest.approx(longest)

"""A good history has no violation; each kind of bad one is found, by the oracle that knows the promise."""

from typing import Any

import pytest

from tests.simulation.oracles.change import recorded
from tests.simulation.oracles.judge import Terms, judge
from tests.support.histories import STARTED_AT, Story, node, pod, with_annotations, with_status

TERMS = Terms(started_at=STARTED_AT, told_within=10.0)


def found(story: Story, terms: Terms = TERMS) -> list[str]:
    """Return the oracles that complain, once each."""
    return sorted({violation.oracle for violation in judge(story.changes, terms)})


def a_cluster(**spec: Any) -> Story:
    """Return a story with a Lease and a trn1.32xlarge."""
    story = Story()
    story.lease()
    story.put(node(**spec))
    return story


def test_a_good_history() -> None:
    """Pods that are bound, run, end and make place for others break no promise."""
    story = a_cluster()
    first = story.bind(story.put(pod("a", 4)), "trn", 0, 1, 2, 3)
    story.bind(story.put(pod("b", 4)), "trn", 4, 5, 6, 7)
    cores = story.put(pod("c", 2, resource="aws.amazon.com/neuroncore"))
    story.bind(cores, "trn", 16, 17, unit="cores")
    story.put(with_status(first, phase="Succeeded"))
    story.bind(story.put(pod("d", 4)), "trn", 0, 1, 2, 3)
    story.bind(story.put(pod("plain", 0)), "trn")
    assert judge(story.changes, TERMS) == []


def test_a_node_that_is_recreated_keeps_its_pods() -> None:
    """A node of the same name has the pods of its predecessor, so their devices are not free."""
    story = a_cluster()
    story.bind(story.put(pod("a", 4)), "trn", 0, 1, 2, 3)
    story.remove(node())
    story.put({**node(), "metadata": node()["metadata"] | {"uid": "another"}})
    story.bind(story.put(pod("b", 4)), "trn", 0, 1, 2, 3)
    assert found(story) == ["cores"]


@pytest.mark.parametrize(("pause", "guilty"), [(1.0, []), (30.0, ["cores"])])
def test_another_schedulers_pod_counts_once_we_must_know_of_it(pause: float, guilty: list[str]) -> None:
    """Ids that another scheduler has just given are no fault of ours; ids that it gave long ago are."""
    story = a_cluster()
    theirs = with_annotations(story.put(pod("theirs", 4, schedulerName="other")), AWS_NEURON_IDS="0,1,2,3")
    theirs["spec"]["nodeName"] = "trn"
    story.put(theirs)
    story.wait(pause)
    story.bind(story.put(pod("ours", 1)), "trn", 0)
    assert found(story) == guilty


def test_a_block_beside_unknown_ids() -> None:
    """No pod gets several devices on a node where somebody's ids are unknown."""
    story = a_cluster()
    theirs = story.put(pod("theirs", 2, schedulerName="other"))
    theirs["spec"]["nodeName"] = "trn"
    story.put(theirs)
    story.wait(30.0)
    story.bind(story.put(pod("one", 1)), "trn", 0)
    assert found(story) == []
    story.bind(story.put(pod("four", 4)), "trn", 4, 5, 6, 7)
    assert found(story) == ["cores"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"ids": (1, 2, 3, 4)},
        {"ids": (0, 1, 2, 4)},
        {"ids": (3, 2, 1, 0)},
        {"ids": (0, 1, 2)},
        {"ids": (13, 14, 15, 16)},
        {"ids": (0, 1, 2, 3), "NEURON_DEVS": "0,1,2"},
        {"ids": (0, 1, 2, 3), "AWS_NEURON_IDS": None},
        {"ids": (0, 1, 2, 3), "NEURON_CORES": "0,1,2,3"},
        {"ids": (0, 1, 2, 3), "NEURON_ALLOCATED": "true"},
        {"ids": (0, 1, 2, 3), "NEURON_ALLOC_TIME": "soon"},
        {"ids": (0, 1, 2, 3), "unit": "cores"},
        {"ids": (0, 1, 2, 3), "neuron-scheduler/allocation": '{"node":"trn","devices":{},"ids":[0,1,2,3]}'},
        {
            "ids": (0, 1, 2, 3),
            "neuron-scheduler/allocation": '{"node":"x","devices":{"main":[0,1,2,3]},"ids":[0,1,2,3]}',
        },
        {"ids": (0, 1, 2, 3), "neuron-scheduler/allocation": "[" * 100_000},
    ],
)
def test_an_allocation_that_is_not_legal_or_not_complete(wrong: dict[str, Any]) -> None:
    """Ids that the machine does not allow, and annotations that the device plugin would misread, are found."""
    story = a_cluster()
    story.bind(story.put(pod("p", 4)), "trn", *wrong.pop("ids"), **wrong)
    assert found(story) == ["allocations"]


def test_init_containers_reuse_ids_of_the_pod() -> None:
    """Each container that asks has its entry; an init container may have ids of the pod's set."""
    story = a_cluster()
    asks = {"requests": {"aws.amazon.com/neuron": "1"}}
    fields: dict[str, Any] = {"initContainers": [{"name": "first", "resources": asks}]}
    p = story.put(pod("p", 4, **fields))
    own = '{"node":"trn","devices":{"main":[0,1,2,3],"first":[0]},"ids":[0,1,2,3]}'
    story.bind(p, "trn", 0, 1, 2, 3, **{"neuron-scheduler/allocation": own})
    assert found(story) == []
    story.bind(story.put(pod("q", 4, **fields)), "trn", 4, 5, 6, 7)
    assert found(story) == ["allocations"]


def test_a_pod_that_tolerates_and_selects() -> None:
    """Tolerations and selectors are read as Kubernetes documents them."""
    tainted = {"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]}
    story = a_cluster(**tainted)
    story.wait(30.0)
    tolerations = [{"key": "dedicated", "operator": "Equal", "value": "x", "effect": "NoSchedule"}]
    rule = {"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": ["inf2.48xlarge"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    story.bind(story.put(pod("p", 1, tolerations=tolerations, affinity=affinity)), "trn", 0)
    assert found(story) == []
    selector: dict[str, Any] = {
        "nodeSelector": {"node.kubernetes.io/instance-type": "inf2.48xlarge"},
        "tolerations": tolerations,
    }
    story.bind(story.put(pod("q", 1, **selector)), "trn", 1)
    assert found(story) == ["nodes_that_fit"]


def test_a_recording_is_put_in_order() -> None:
    """Events of several watches come in any order, and twice; what counts are their versions."""
    story = a_cluster()
    story.bind(story.put(pod("a", 4)), "trn", 0, 1, 2, 3)
    story.bind(story.put(pod("b", 4)), "trn", 0, 1, 2, 3)
    events = [(change.at, change.type, change.object) for change in story.changes]
    bookmark = (0.0, "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "99"}})
    changes = list(recorded([*reversed(events), bookmark, *events]))
    assert [(c.version, c.type, c.previous) for c in changes] == [
        (c.version, c.type, c.previous) for c in story.changes
    ]
    assert {violation.oracle for violation in judge(changes, TERMS)} == {"cores"}

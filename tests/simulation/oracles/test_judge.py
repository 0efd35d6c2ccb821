"""A good history has no violation; each kind of bad one is found, by the oracle that knows the promise."""

import copy
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from tests.simulation.oracles.change import recorded
from tests.simulation.oracles.judge import Terms, judge
from tests.support.histories import STARTED_AT, Story, lease, node, pod, with_annotations, with_status

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


def test_two_pods_with_one_core() -> None:
    """A device given twice is found, and so is a core of a device that is given whole."""
    for second, unit, ids in (("b", "devices", (3,)), ("c", "cores", (6,))):
        story = a_cluster()
        story.bind(story.put(pod("a", 4)), "trn", 0, 1, 2, 3)
        resource = "aws.amazon.com/neuron" if unit == "devices" else "aws.amazon.com/neuroncore"
        story.bind(story.put(pod(second, 1, resource=resource)), "trn", *ids, unit=unit)
        assert found(story) == ["cores"]


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


def test_another_scheduler_that_takes_our_cores() -> None:
    """What others do to each other, and to us, is not our fault."""
    story = a_cluster()
    story.bind(story.put(pod("ours", 4)), "trn", 0, 1, 2, 3)
    for name in ("theirs", "theirs-too"):
        theirs = with_annotations(story.put(pod(name, 4, schedulerName="other")), AWS_NEURON_IDS="0,1,2,3")
        theirs["spec"]["nodeName"] = "trn"
        story.put(theirs)
    assert found(story) == []


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


def test_one_time_for_two_pods() -> None:
    """NEURON_ALLOC_TIME differs between the live pods of a node."""
    story = a_cluster()
    story.bind(story.put(pod("a", 1)), "trn", 0, time=1_800_000_000_000_000_000)
    story.bind(story.put(pod("b", 1)), "trn", 1, time=1_800_000_000_000_000_000)
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


@pytest.mark.parametrize(
    "spec",
    [
        {"unschedulable": True},
        {"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]},
    ],
)
def test_a_node_that_keeps_pods_away(spec: dict[str, Any]) -> None:
    """A Binding to a node that was cordoned or tainted long before is found; one just before is not a fault."""
    story = a_cluster(**spec)
    story.wait(30.0)
    story.bind(story.put(pod("p", 1)), "trn", 0)
    assert found(story) == ["nodes_that_fit"]
    story = a_cluster()
    story.wait(30.0)
    waiting = story.put(pod("p", 1))
    story.put(node(**spec))
    story.bind(waiting, "trn", 0)
    assert found(story) == []


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


def test_more_than_a_node_has() -> None:
    """CPU that is requested twice is found, and so is a node that never existed."""
    story = a_cluster()
    much = [{"name": "main", "resources": {"requests": {"cpu": "100"}}}]
    story.bind(story.put(pod("a", 0, containers=much)), "trn")
    assert found(story) == []
    story.bind(story.put(pod("b", 0, containers=much)), "trn")
    assert found(story) == ["nodes_that_fit"]
    story = a_cluster()
    story.bind(story.put(pod("c", 0)), "nowhere")
    assert found(story) == ["nodes_that_fit"]


def test_a_pod_that_is_bound_twice() -> None:
    """A pod never changes its node."""
    story = a_cluster()
    story.put(node("trn-2"))
    moved = story.bind(story.put(pod("p", 0)), "trn")
    moved["spec"]["nodeName"] = "trn-2"
    story.put(moved)
    assert found(story) == ["one_binding"]


def test_only_the_holder_of_the_lease_binds() -> None:
    """With the policy, a Binding of a former holder is found; within the lag of the server's watch it is not."""
    for pause, guilty in ((0.1, []), (5.0, ["one_binding"])):
        story = a_cluster()
        story.lease("replica-b_2")
        story.wait(pause)
        story.bind(story.put(pod("p", 0)), "trn", sender="replica-a_1")
        story.bind(story.put(pod("q", 0)), "trn", sender="replica-b_2")
        assert found(story) == guilty


def test_without_the_policy_clocks_protect() -> None:
    """Without the policy a late Binding is tolerated as long as one may take; one by nobody we know is not."""
    terms = attrs.evolve(TERMS, fenced=False, latest=20.0)
    for pause, sender, guilty in (
        (5.0, "replica-a_1", []),
        (30.0, "replica-a_1", ["one_binding"]),
        (5.0, "stranger", ["one_binding"]),
    ):
        story = a_cluster()
        story.lease("replica-b_2")
        story.wait(pause)
        story.bind(story.put(pod("p", 0)), "trn", sender=sender)
        assert found(story, terms) == guilty


def test_without_a_lease_anybody_binds() -> None:
    """The policy allows every Binding while there is no Lease."""
    story = a_cluster()
    story.remove(lease("replica-a_1"))
    story.wait(5.0)
    story.bind(story.put(pod("p", 0)), "trn")
    assert found(story) == []


def _drop_label(pod: dict[str, Any]) -> None:
    pod["metadata"]["labels"] = {}


def _drop_condition(pod: dict[str, Any]) -> None:
    pod["status"]["conditions"] = [c for c in pod["status"]["conditions"] if c["type"] != "Theirs"]


def _tolerate(pod: dict[str, Any]) -> None:
    pod["spec"]["tolerations"] = [{"operator": "Exists"}]


def _drop_annotation(pod: dict[str, Any]) -> None:
    del pod["metadata"]["annotations"]["theirs"]


def _drop_finalizer(pod: dict[str, Any]) -> None:
    del pod["metadata"]["finalizers"]


def _nothing(_pod: dict[str, Any]) -> None:
    pass


@pytest.mark.parametrize(
    ("spoil", "guilty"),
    [
        (_nothing, []),
        (_drop_label, ["others_words"]),
        (_drop_condition, ["others_words"]),
        (_tolerate, ["others_words"]),
        (_drop_annotation, ["others_words"]),
        (_drop_finalizer, ["others_words"]),
    ],
)
def test_what_others_wrote_stays(spoil: Callable[[dict[str, Any]], None], guilty: list[str]) -> None:
    """A Binding, or a condition, that loses what others wrote is found."""
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    for bind in (True, False):
        story = a_cluster()
        before = pod("p", 0)
        before["metadata"] |= {"labels": {"app": "x"}, "finalizers": ["theirs/protects"]}
        before["status"]["conditions"] = [{"type": "Theirs", "status": "True"}]
        before = story.put(before)
        after = copy.deepcopy(before)
        spoil(after)
        if bind:
            story.bind(after, "trn")
        else:
            after["status"]["conditions"] = [*after["status"]["conditions"], refused]
            story.put(after)
        assert found(story) == guilty


def test_what_a_replica_may_not_write() -> None:
    """Where authors are known, a replica that writes a node, or another's Event, is found."""
    event = {"kind": "Event", "metadata": {"namespace": "default", "name": "e"}, "reportingComponent": "kubelet"}
    for first, second in ((node(), node(unschedulable=True)), (event, event | {"message": "other"})):
        for author, guilty in (("replica-a", ["others_words"]), ("", [])):
            story = a_cluster()
            story.put(first, author="")
            story.put(second, author=author)
            assert found(story) == guilty


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

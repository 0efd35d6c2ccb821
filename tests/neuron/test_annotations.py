"""Ids in annotations: our own are read back, those of other schedulers are read strictly."""

import json

import pytest
from hypothesis import given, settings, strategies as st

from neuron_scheduler.model.annotations import (
    ALLOCATION_KEYS,
    AWS_NEURON_IDS,
    NEURON_ALLOC_TIME,
    NEURON_ALLOCATED,
    NEURON_RESOURCE_TYPE,
    OUR_ALLOCATION,
)
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE
from neuron_scheduler.neuron.annotations import (
    alloc_time_of,
    allocation_of,
    annotations_for,
    has_ids,
    ids_in_words,
    lookup_amounts,
)
from neuron_scheduler.neuron.catalog import Machine, Shape
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import Placement, place
from tests.support.thoroughness import examples


@pytest.mark.parametrize(
    ("ids", "want"),
    [((4, 5, 6, 7), "devices 4-7"), ((5,), "device 5"), ((0, 1, 8), "devices 0-1, 8")],
)
def test_neighbours_are_written_as_a_range(ids: tuple[int, ...], want: str) -> None:
    """A run has its first and its last id."""
    assert ids_in_words(ids, "device") == want


INF1_6 = Machine("inf1.6xlarge", Shape.LINE, 4, 4)
INF2_48 = Machine("inf2.48xlarge", Shape.RING, 12, 2)
TRN1 = Machine("trn1.32xlarge", Shape.TORUS, 16, 2)
TRN1_2 = Machine("trn1.2xlarge", Shape.SINGLE, 1, 2)


def request(unit: Unit, *counts: int, total: int = 0) -> NeuronRequest:
    """Return a request under the unit's usual name."""
    name = NEURON_DEVICE if unit is Unit.DEVICE else NEURON_CORE
    return NeuronRequest(unit, counts, total or sum(counts), resource=name)


def pod(neuron: NeuronRequest | None, annotations: dict[str, str] | None = None, *, node: str = "n1") -> Pod:
    """Return a bound pod with containers c0, c1, ..., and init containers i0, ...; its annotations as they are kept."""
    counts, inits = (neuron.counts, neuron.init_counts) if neuron else ((), ())
    return Pod(
        uid="u",
        namespace="default",
        name="p",
        node_name=node,
        neuron=neuron,
        neuron_containers=(*(f"c{i}" for i in range(len(counts))), *(f"i{i}" for i in range(len(inits)))),
        requests={neuron.resource: neuron.total} if neuron else {},
        allocation={key: value for key, value in (annotations or {}).items() if key in ALLOCATION_KEYS},
    )


def own(ids: object, *, node: object = "n1", key: str = "devices") -> str:
    """Return our own annotation with some ids."""
    return json.dumps({"node": node, key: {"c0": ids}, "ids": ids})


TWO = request(Unit.DEVICE, 2)
THREE_CORES = request(Unit.CORE, 3)

READ: dict[str, tuple[Pod, Machine, int]] = {
    "device ids of AWS's extension": (pod(TWO, {AWS_NEURON_IDS: "2,3"}), INF1_6, 0xFF00),
    "core ids of AWS's extension": (pod(THREE_CORES, {AWS_NEURON_IDS: "3,4,5"}), INF1_6, 0b111000),
    "HAMi, with the resource type": (
        pod(THREE_CORES, {AWS_NEURON_IDS: "0,1,2", NEURON_RESOURCE_TYPE: NEURON_CORE}),
        INF1_6,
        0b111,
    ),
    "the documented name for devices": (pod(TWO, {"NEURON_DEVS": "0,1"}), INF1_6, 0xFF),
    "the documented name for cores": (pod(THREE_CORES, {"NEURON_CORES": "0,1,2"}), INF1_6, 0b111),
    "our own": (pod(TWO, {OUR_ALLOCATION: own([1, 2])}), INF1_6, 0x0FF0),
    "our own beside other annotations": (
        pod(TWO, {OUR_ALLOCATION: own([1, 2]), AWS_NEURON_IDS: "2,1", "NEURON_DEVS": "x"}),
        INF1_6,
        0x0FF0,
    ),
    "our own of another node is ignored": (
        pod(TWO, {OUR_ALLOCATION: own([1, 2], node="n2"), AWS_NEURON_IDS: "0,1"}),
        INF1_6,
        0xFF,
    ),
    "ids that kubelet scattered": (pod(TWO, {AWS_NEURON_IDS: "3,0"}), INF1_6, 0xF00F),
    "all devices without ids": (pod(request(Unit.DEVICE, 4)), INF1_6, 0xFFFF),
    "all cores without ids": (pod(request(Unit.CORE, 16)), INF1_6, 0xFFFF),
    "all devices with nonsense": (pod(request(Unit.DEVICE, 4), {AWS_NEURON_IDS: "?"}), INF1_6, 0xFFFF),
    "the only device": (pod(request(Unit.DEVICE, 1)), TRN1_2, 0b11),
    "a pod without Neuron": (pod(None, {AWS_NEURON_IDS: "0,1"}), INF1_6, 0),
}


@pytest.mark.parametrize("case", READ)
def test_read(case: str) -> None:
    """Every form that names the ids for certain is read."""
    given_pod, machine, want = READ[case]

    assert allocation_of(given_pod, machine) == (CoreMask(want), "")


UNKNOWN: dict[str, tuple[dict[str, str], str]] = {
    "no annotation": ({}, "no annotation"),
    "only our own, for another node": ({OUR_ALLOCATION: own([1, 2], node="n2")}, "no annotation"),
    "too few ids": ({AWS_NEURON_IDS: "1"}, "1 ids"),
    "too many ids": ({AWS_NEURON_IDS: "1,2,3"}, "3 ids"),
    "an id twice": ({AWS_NEURON_IDS: "1,1"}, "twice"),
    "an id out of range": ({AWS_NEURON_IDS: "3,4"}, "name device 4, but its node has devices 0 to 3"),
    "a negative id": ({AWS_NEURON_IDS: "-1,2"}, "not a list"),
    "a sign": ({AWS_NEURON_IDS: "+1,2"}, "not a list"),
    "a blank": ({AWS_NEURON_IDS: "1, 2"}, "not a list"),
    "a line break": ({AWS_NEURON_IDS: "1,2\n"}, "not a list"),
    "a leading zero": ({AWS_NEURON_IDS: "01,2"}, "not a list"),
    "an underscore": ({AWS_NEURON_IDS: "1_0,2"}, "not a list"),
    "digits of another script": ({AWS_NEURON_IDS: "\u0661,\u0662"}, "not a list"),
    "an id of many digits": ({AWS_NEURON_IDS: "1," + "9" * 5000}, "not a list"),
    "a comma too many": ({AWS_NEURON_IDS: "1,2,"}, "not a list"),
    "empty": ({AWS_NEURON_IDS: ""}, "not a list"),
    "the other documented name": ({"NEURON_CORES": "1,2"}, "no annotation"),
    "another resource type": ({AWS_NEURON_IDS: "1,2", NEURON_RESOURCE_TYPE: NEURON_CORE}, NEURON_RESOURCE_TYPE),
    "two answers": ({OUR_ALLOCATION: own([1, 2]), AWS_NEURON_IDS: "0,1"}, "different ids"),
    "our own is no JSON": ({OUR_ALLOCATION: "{", AWS_NEURON_IDS: "0,1"}, "not JSON"),
    "our own is bottomless": ({OUR_ALLOCATION: "[" * 200_000}, "not JSON"),
    "our own is a list": ({OUR_ALLOCATION: "[1,2]"}, "names no node"),
    "our own without a node": ({OUR_ALLOCATION: own([1, 2], node=None)}, "names no node"),
    "our own with words": ({OUR_ALLOCATION: own(["1", "2"])}, "no list of ids"),
    "our own with truth": ({OUR_ALLOCATION: own([True, False])}, "no list of ids"),
    "our own with fractions": ({OUR_ALLOCATION: own([1.0, 2.0])}, "no list of ids"),
    "our own without ids": ({OUR_ALLOCATION: own(None)}, "no list of ids"),
    "our own about cores": ({OUR_ALLOCATION: own([1, 2], key="cores")}, "not about"),
    "our own with a huge number": (
        {OUR_ALLOCATION: '{"node":"n1","devices":{},"ids":[' + "9" * 5000 + ",1]}"},
        "not JSON",
    ),
    "our own out of range": ({OUR_ALLOCATION: own([-1, 2])}, "name device -1, but its node has devices 0 to 3"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown(case: str) -> None:
    """If the ids are not certain, the pod is an unknown holder, with the reason."""
    annotations, want = UNKNOWN[case]
    cores, problem = allocation_of(pod(TWO, annotations), INF1_6)

    assert cores is None
    assert want in problem


def test_unknown_machine() -> None:
    """Ids mean nothing on a node without Neuron, or in a unit that it does not serve."""
    only_cores = Machine("inf1.6xlarge", Shape.LINE, 16, 1, frozenset({Unit.CORE}))

    assert allocation_of(pod(TWO, {AWS_NEURON_IDS: "0,1"}), None)[0] is None
    assert allocation_of(pod(TWO, {AWS_NEURON_IDS: "0,1"}), only_cores)[0] is None


def test_refused_pod_that_holds_neuron() -> None:
    """A bound pod with a refused mixed request is an unknown holder."""
    mixed = Pod(
        uid="u", namespace="d", name="p", node_name="n1", requests={NEURON_DEVICE: 1, NEURON_CORE: 1}, refusal="r"
    )

    assert allocation_of(mixed, INF1_6) == (None, "r")


def test_written() -> None:
    """Observed, documented and own annotations are written, all as strings; the time is the Binding's."""
    neuron = request(Unit.DEVICE, 2, 1)
    placement = place(INF2_48, INF2_48.all_cores, neuron)
    assert placement is not None
    annotations = annotations_for(
        pod=pod(neuron),
        machine=INF2_48,
        placement=placement,
        node_name="n1",
    )

    assert annotations == {
        AWS_NEURON_IDS: "0,1,2",
        NEURON_ALLOCATED: "false",
        "NEURON_DEVS": "0,1,2",
        OUR_ALLOCATION: '{"node":"n1","devices":{"c0":[0,1],"c1":[2]},"ids":[0,1,2]}',
    }


def test_written_for_cores() -> None:
    """Core requests are written under the documented name for cores, and without a leader there is no such key."""
    placement = place(INF1_6, INF1_6.all_cores, THREE_CORES)
    assert placement is not None
    annotations = annotations_for(pod=pod(THREE_CORES), machine=INF1_6, placement=placement, node_name="n1")

    assert annotations["NEURON_CORES"] == annotations[AWS_NEURON_IDS] == "0,1,2"
    assert "NEURON_DEVS" not in annotations


def test_id_list_follows_the_containers() -> None:
    """Where ids cannot ascend, the list still gives each container its own consecutive ids in spec order."""
    neuron = request(Unit.DEVICE, 2, 1)
    placement = place(INF2_48, CoreMask(0b11 << 2 | 0b1111 << 8), neuron)
    assert placement is not None
    annotations = annotations_for(pod=pod(neuron), machine=INF2_48, placement=placement, node_name="n1")

    assert placement.ids == (1, 4, 5)
    assert annotations[AWS_NEURON_IDS] == "4,5,1"
    assert json.loads(annotations[OUR_ALLOCATION])["devices"] == {"c0": [4, 5], "c1": [1]}


def test_init_container_does_not_shift_names() -> None:
    """With an init container before them, each set is under the right container's name (HAMi #2173, #2738)."""
    neuron = NeuronRequest(Unit.DEVICE, (1, 1), 3, (3,))
    placement = place(INF2_48, INF2_48.all_cores, neuron)
    assert placement is not None
    annotations = annotations_for(pod=pod(neuron), machine=INF2_48, placement=placement, node_name="n1")

    assert annotations[AWS_NEURON_IDS] == "0,1,2"
    assert json.loads(annotations[OUR_ALLOCATION]) == {
        "node": "n1",
        "devices": {"c0": [0], "c1": [1], "i0": [0, 1, 2]},
        "ids": [0, 1, 2],
    }


FOREIGN: dict[str, tuple[NeuronRequest | None, Placement]] = {
    "no request": (None, Placement((0,), ((0,),), CoreMask(0b1111), 1)),
    "another count": (TWO, Placement((0,), ((0,),), CoreMask(0b1111), 1)),
    "another machine's cores": (TWO, Placement((0, 1), ((0, 1),), CoreMask(0b1111), 1)),
    "beyond the machine": (TWO, Placement((3, 4), ((3, 4),), CoreMask(0xFF000), 1)),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_foreign_placement(case: str) -> None:
    """A placement that does not belong to the pod or the machine raises ValueError."""
    neuron, placement = FOREIGN[case]

    with pytest.raises(ValueError, match="asks for"):
        annotations_for(pod=pod(neuron), machine=INF1_6, placement=placement, node_name="n1")


@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from([INF1_6, INF2_48, TRN1]),
    st.sampled_from(list(Unit)),
    st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=3),
    st.integers(0, 2**32 - 1),
)
def test_round_trip(machine: Machine, unit: Unit, counts: list[int], free: int) -> None:
    """What is written is read back as the same cores, from any of the forms alone."""
    neuron = request(unit, *counts)
    placement = place(machine, CoreMask(free), neuron) or place(machine, machine.all_cores, neuron)
    if placement is None:
        return
    written = annotations_for(pod=pod(neuron), machine=machine, placement=placement, node_name="n1")
    alone = [{key: written[key]} for key in written if key != NEURON_ALLOCATED]

    assert written.keys() <= set(ALLOCATION_KEYS)
    for annotations in (written, *alone):
        assert allocation_of(pod(neuron, annotations), machine) == (placement.cores, "")


AMOUNTS: dict[str, tuple[NeuronRequest, set[int]]] = {
    "one unit": (request(Unit.DEVICE, 1), set()),
    "all": (request(Unit.DEVICE, 16), set()),
    "in between": (request(Unit.DEVICE, 4), {4}),
    "containers, and their sum": (request(Unit.DEVICE, 2, 4), {2, 4, 6}),
    "an init container": (NeuronRequest(Unit.DEVICE, (4,), 8, (8,)), {4, 8}),
    "containers of one unit": (request(Unit.DEVICE, 1, 1, 1), {3}),
    "containers that share all": (request(Unit.DEVICE, 8, 8), {8}),
    "all of the other unit": (request(Unit.CORE, 16), {16}),
}


@pytest.mark.parametrize("case", AMOUNTS)
def test_amounts_that_the_plugin_looks_for(case: str) -> None:
    """Those of the containers and of the pod, except one unit and the whole machine, for which it looks at no pod."""
    neuron, amounts = AMOUNTS[case]

    assert lookup_amounts(neuron, TRN1) == {(neuron.unit, amount) for amount in amounts}


def test_devices_with_their_cores() -> None:
    """Each documented list has the ids of its resource; the plugin may look for the pod by both amounts."""
    neuron = NeuronRequest(Unit.DEVICE, (4, 1), 5, cores_each=2)
    placement = place(TRN1, TRN1.all_cores & ~CoreMask(0b11), neuron)
    assert placement is not None
    written = annotations_for(pod=pod(neuron), machine=TRN1, placement=placement, node_name="n1")
    devices, cores = ([int(number) for number in written[key].split(",")] for key in ("NEURON_DEVS", "NEURON_CORES"))
    assert written[AWS_NEURON_IDS] == written["NEURON_DEVS"]
    assert cores == [core for device in devices for core in (2 * device, 2 * device + 1)]
    assert allocation_of(pod(neuron, written), TRN1)[0] == placement.cores
    assert lookup_amounts(neuron, TRN1) == {(Unit.DEVICE, 4), (Unit.DEVICE, 5)} | {(Unit.CORE, n) for n in (2, 8, 10)}
    assert not lookup_amounts(NeuronRequest(Unit.DEVICE, (16,), 16, cores_each=2), TRN1)


def test_a_time_alone_names_no_ids() -> None:
    """The plugin can hand out ids only of a pod that has some, whichever scheduler wrote them."""
    assert not has_ids(pod(TWO, {NEURON_ALLOC_TIME: "1", NEURON_ALLOCATED: "false"}))
    assert has_ids(pod(TWO, {AWS_NEURON_IDS: "0,1"}))
    assert has_ids(pod(TWO, {"NEURON_DEVS": "0,1"}))


TIMES: dict[str, tuple[str, int | None]] = {
    "as observed": ("1743574052764891534", 1743574052764891534),
    "no number": ("soon", None),
    "empty": ("", None),
    "negative": ("-5", None),
    "a sign": ("+5", None),
    "an underscore": ("1_0", None),
    "a blank": (" 5", None),
    "a line break": ("5\n", None),
    "zero": ("0", None),
    "so late that no later time is left": (str(2**63 - 1), None),
    "more than 64 bits": ("9" * 5000, None),
}


@pytest.mark.parametrize("case", TIMES)
def test_alloc_time(case: str) -> None:
    """Only credible times are read."""
    text, want = TIMES[case]

    assert alloc_time_of(pod(TWO, {NEURON_ALLOC_TIME: text})) == want


def test_alloc_time_of_others() -> None:
    """An unbound pod or one without Neuron has no allocation time, whatever it says."""
    assert alloc_time_of(pod(TWO, {NEURON_ALLOC_TIME: "5"}, node="")) is None
    assert alloc_time_of(pod(None, {NEURON_ALLOC_TIME: "5"})) is None
    assert alloc_time_of(pod(TWO)) is None

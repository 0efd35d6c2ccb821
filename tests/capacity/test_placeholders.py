"""A placeholder asks for the machine, carries what the waiting pod requires, and can be read back."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.capacity.placeholders import is_placeholder, manifest, need_of
from neuron_scheduler.capacity.planning.need import LimitOwner
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_CORE, NEURON_DEVICE
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Operator, Requirement, Toleration
from neuron_scheduler.settings.profile_config import RESERVED
from tests.capacity.asked import NAME, asked
from tests.support.builders import GI, pod

TYPES = Requirement(INSTANCE_TYPE_LABEL, Operator.IN, ("trn1.32xlarge",))
ZONES = Requirement(ZONE_LABEL, Operator.IN, ("a", "b"))
TEAM = Requirement("team", Operator.IN, ("a",))
NEW = Requirement("old", Operator.DOES_NOT_EXIST)
LARGE = Requirement("gen", Operator.GT, ("2",))


def read_back(**changes: Any) -> Pod:
    """Return the placeholder of a request as the watch of pods shows it."""
    value = PODS.decode(msgspec.json.encode(manifest(NAME, asked(**changes), "registry.example/pause:1"))).value
    assert isinstance(value, Pod)
    return value


def test_what_it_is() -> None:
    """No scheduler places it, it is admitted as restricted, and people see for whom it is."""
    placeholder = manifest(NAME, asked(), "registry.example/pause:1")
    assert placeholder["metadata"] == {
        "name": NAME,
        "namespace": "neuron-scheduler-capacity",
        "labels": {
            "app.kubernetes.io/name": "neuron-scheduler",
            "app.kubernetes.io/component": "capacity-request",
            "neuron-scheduler/placeholder": "true",
            "neuron-scheduler/requested-by": "my-scheduler",
            "neuron-scheduler/for-namespace": "team-a",
        },
        "annotations": {"neuron-scheduler/capacity-request-pods": "u1,u2"},
    }
    spec = placeholder["spec"]
    assert spec["schedulerName"] == RESERVED
    assert (spec["priorityClassName"], spec["preemptionPolicy"]) == ("neuron-scheduler-capacity", "Never")
    assert spec["terminationGracePeriodSeconds"] == 0
    assert spec["automountServiceAccountToken"] is False
    (container,) = spec["containers"]
    amounts = {"aws.amazon.com/neuron": "16", "cpu": "4001m", "memory": "8Gi"}
    assert container["resources"] == {"requests": amounts, "limits": amounts}
    assert container["image"] == "registry.example/pause:1"


@pytest.mark.parametrize("zones", [(), ("a", "b")])
def test_what_decides_is_read_back(zones: tuple[str, ...]) -> None:
    """The next leader knows type, zones and amounts, also where both units are asked for, and whose limits count."""
    silicon, host = {NEURON_DEVICE: 16, NEURON_CORE: 32}, {CPU: 12_001, MEMORY: 3 * GI + 1}
    placeholder = read_back(silicon=silicon, host=host, zones=zones)
    need = need_of(placeholder)
    assert (need.silicon, need.host, need.zones) == (silicon, host, zones)
    assert (need.instance_type, need.owner) == ("trn1.32xlarge", LimitOwner("my-scheduler", "team-a"))
    assert is_placeholder(placeholder)


@pytest.mark.parametrize(
    ("required", "zones", "want"),
    [
        pytest.param(None, (), [(TYPES,)], id="no own terms"),
        pytest.param(None, ("a", "b"), [(TYPES, ZONES)], id="zones"),
        pytest.param(
            (NodeSelectorTerm((TEAM, NEW)), NodeSelectorTerm((LARGE,))),
            ("a", "b"),
            [(TEAM, NEW, TYPES, ZONES), (LARGE, TYPES, ZONES)],
            id="each own term",
        ),
        pytest.param(
            (
                NodeSelectorTerm(),
                NodeSelectorTerm((TEAM,), unreadable=True),
                NodeSelectorTerm((TEAM,), (Requirement("metadata.name", Operator.IN, ("n",)),)),
                NodeSelectorTerm((LARGE,)),
            ),
            (),
            [(LARGE, TYPES)],
            id="without terms that no new node matches",
        ),
    ],
)
def test_required_terms(
    required: tuple[NodeSelectorTerm, ...] | None, zones: tuple[str, ...], want: list[tuple[Requirement, ...]]
) -> None:
    """Each of the pod's terms gets the types and zones; a term that would match less must not come to match more."""
    terms = read_back(pattern=pod("p", required_terms=required), zones=zones).constraints.required_terms
    assert terms == tuple(NodeSelectorTerm(expressions) for expressions in want)


tolerations = st.builds(
    Toleration,
    key=st.sampled_from(["", "team", "aws.amazon.com/neuron"]),
    exists=st.booleans(),
    value=st.sampled_from(["", "x"]),
    effect=st.sampled_from([None, *Effect]),
)


@given(st.lists(tolerations, max_size=4), st.dictionaries(st.sampled_from(["a", "b/c"]), st.sampled_from(["", "x"])))
def test_tolerations_and_selector_read_back(carried: list[Toleration], selector: dict[str, str]) -> None:
    """What the pod tolerates and selects, its placeholder does."""
    carried = [t if t.key or t.exists else Toleration("k", value=t.value, effect=t.effect) for t in carried]
    like = pod("p", tolerations=tuple(carried), node_selector=selector)
    placeholder = read_back(pattern=like)
    assert placeholder.constraints.node_selector == selector
    for mine, its in zip(carried, placeholder.tolerations, strict=True):
        assert (its.key, its.exists, its.effect) == (mine.key, mine.exists, mine.effect)
        assert its.value == ("" if mine.exists else mine.value)

"""The status of a waiting pod: what it says, when two are equal, and its patch."""

import msgspec
import pytest

from neuron_scheduler.kube.writes.pod_condition import WaitingStatus, encode_patch, status_of
from neuron_scheduler.model.nomination import CLEAR, KEEP, Nominate, NominationChange
from neuron_scheduler.model.pod import Pod, PodCondition

WAITING = Pod(
    uid="u1", namespace="d", name="p", nominated_node_name="n1", scheduled=PodCondition("False", "Unschedulable", "m")
)


@pytest.mark.parametrize(
    ("nomination", "written"),
    [(Nominate("n2"), {"nominatedNodeName": "n2"}), (CLEAR, {"nominatedNodeName": None}), (KEEP, {})],
    ids=str,
)
def test_the_nominated_node_in_the_patch(nomination: NominationChange, written: dict[str, str | None]) -> None:
    """A name sets the field, null removes it, and a patch without it leaves it as it is."""
    patch = msgspec.json.decode(encode_patch(WAITING, WaitingStatus("r", "m", nomination), now=0.0, first=False))
    status = patch["status"]
    del status["conditions"]
    assert status == written


@pytest.mark.parametrize("nomination", [Nominate("n1"), KEEP], ids=str)
def test_the_status_that_the_pod_has(nomination: NominationChange) -> None:
    """It equals the status that is to be written, so that nothing is written."""
    assert status_of(WAITING, nomination) == WaitingStatus("Unschedulable", "m", nomination)

"""Each reason of a volume comes with the claim or the volume that it is about."""

from collections.abc import Mapping

import pytest

from neuron_scheduler.explain.steps import finished
from neuron_scheduler.explain.why import explain_pod
from neuron_scheduler.model.node import ZONE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import CSIDriver, CSINode, InlineVolume, Storage
from neuron_scheduler.scheduling.cycle.profile import default_profile
from tests.support.builders import GI, pod
from tests.support.storage import claim, stored, volume, zone, zoned

PROFILE = default_profile("my-scheduler")
EBS = "ebs.csi.aws.com"
P = pod(volume_claims=("data",))
DISK = InlineVolume("kubernetes.io/aws-ebs", EBS, "vol-1")
ON_EBS = (claim(bound_to="pv"), volume(of="data", driver=EBS, handle="vol-2"))
CASES: Mapping[str, tuple[tuple[Storage, ...], tuple[Pod, ...], Pod, str]] = {
    "a disk that is used here": (
        (),
        (pod("other", on="a", disks=(DISK,)),),
        pod(disks=(DISK,)),
        "its disk is used here by default/other",
    ),
    "a claim for one pod": (
        (claim(bound_to="pv", access_modes=("ReadWriteOncePod",)), volume(of="data")),
        (pod("other", on="b", volume_claims=("data",)),),
        P,
        "claim data is for one pod, and default/other uses it",
    ),
    "a driver with too little room": (
        (*ON_EBS, CSINode("uid-a", "a", {EBS: 1}, frozenset({"kubernetes.io/aws-ebs"}), drivers=frozenset({EBS}))),
        (pod("other", on="a", disks=(DISK,)),),
        P,
        f"{EBS} attaches at most 1; 1 attached, 1 more needed",
    ),
    "a driver that is not there": (
        (*ON_EBS, CSIDriver("uid-ebs", EBS, required=True)),
        (),
        P,
        f"the driver {EBS} is not installed here",
    ),
    "a volume of another zone": (
        (claim(bound_to="pv"), volume(of="data", on=zone("y"))),
        (),
        P,
        "volume pv of claim data is for other nodes",
    ),
    "a volume that does not exist": (
        (claim(bound_to="pv"),),
        (),
        P,
        "",
    ),
    "no volume to bind": (
        (claim(), volume(on=zone("y"))),
        (),
        P,
        "no volume is or can be made here for claim data (1Gi)",
    ),
    "no room to make one": (
        (CSIDriver("uid-ebs", EBS, storage_capacity=True), claim(class_name="gp3", request=2 * GI)),
        (),
        P,
        "the driver has too little room here for claim data (2Gi)",
    ),
    "a label of an old volume": (
        (claim(bound_to="pv"), volume(of="data", labels={ZONE_LABEL: "y__z"})),
        (),
        P,
        f"the pod's volumes are in {ZONE_LABEL} in (y and z)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_sentence(name: str) -> None:
    """The group of the node in zone x says it."""
    storage, bound, pending, want = CASES[name]
    explanation = finished(explain_pod(stored(zoned(a="x", b="y"), *storage, pods=bound), pending, PROFILE))
    assert [group.arithmetic for group in explanation.groups if "a" in group.names] == [want]

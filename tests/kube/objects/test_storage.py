"""Storage objects as the API server writes them."""

import json
from typing import Any

import attrs
import pytest

from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.objects.storage import (
    ATTACHMENTS,
    CAPACITIES,
    CLAIMS,
    CLASSES,
    CSI_DRIVERS,
    CSI_NODES,
    VOLUMES,
)
from neuron_scheduler.model.selectors import LabelSelector, NodeSelectorTerm, Operator, Requirement
from neuron_scheduler.model.volumes import (
    ClaimRef,
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from tests.support.storage import at, room

ZONE = "topology.kubernetes.io/zone"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
EBS_ZONE = "topology.ebs.csi.aws.com/zone"


def item(name: str = "o", *, spec: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    """Return an object."""
    manifest: dict[str, Any] = {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "7"} | metadata}
    return manifest | ({} if spec is None else {"spec": spec}) | ({} if status is None else {"status": status})


def read(resource: Any, manifest: Any) -> Any:
    """Return the value that is read from an object."""
    return resource.decode(json.dumps(manifest).encode()).value


def test_a_claim() -> None:
    """All fields that decide."""
    claim = read(
        CLAIMS,
        item(
            "data",
            namespace="d",
            annotations={"volume.kubernetes.io/selected-node": "n", "pv.kubernetes.io/bind-completed": "yes"},
            deletionTimestamp="2026-11-21T08:00:00Z",
            ownerReferences=[{"uid": "other"}, {"uid": "pod", "controller": True}],
            spec={
                "accessModes": ["ReadWriteOncePod"],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "gp3",
                "selector": {"matchLabels": {"disk": "ssd"}},
                "volumeMode": "Block",
                "volumeName": "pv",
                "volumeAttributesClassName": "gold",
            },
            status={"phase": "Lost"},
        ),
    )
    assert claim == PersistentVolumeClaim(
        uid="uid-data",
        namespace="d",
        name="data",
        resource_version="7",
        volume_name="pv",
        class_name="gp3",
        access_modes=("ReadWriteOncePod",),
        request=1 << 30,
        selector=LabelSelector((Requirement("disk", Operator.IN, ("ssd",)),)),
        volume_mode="Block",
        attributes_class="gold",
        selected_node="n",
        bind_completed=True,
        lost=True,
        terminating=True,
        owner="pod",
    )
    assert claim.key == "d/data"
    assert claim.is_fully_bound


def test_a_claim_that_says_little() -> None:
    """Absent fields are empty, and the old annotation for the class comes first."""
    annotations = {"volume.beta.kubernetes.io/storage-class": "old"}
    value = read(CLAIMS, item("data", namespace="d", annotations=annotations, spec={"storageClassName": "new"}))
    assert value == PersistentVolumeClaim("uid-data", "d", "data", "7", class_name="old")


def test_a_volume() -> None:
    """A CSI volume with its claim and affinity; conditions on fields are left out, as upstream does."""
    term = {
        "matchExpressions": [{"key": EBS_ZONE, "operator": "In", "values": ["a"]}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
    }
    volume = read(
        VOLUMES,
        item(
            "pv",
            labels={"disk": "ssd"},
            spec={
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "claimRef": {"namespace": "d", "name": "data", "uid": "u"},
                "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
                "storageClassName": "gp3",
            },
            status={"phase": "Bound"},
        ),
    )
    terms = (NodeSelectorTerm((Requirement(EBS_ZONE, Operator.IN, ("a",)),)),)
    assert volume == PersistentVolume(
        uid="uid-pv",
        name="pv",
        resource_version="7",
        labels={"disk": "ssd"},
        class_name="gp3",
        access_modes=("ReadWriteOnce",),
        capacity=1 << 30,
        claim=ClaimRef("d/data", "u"),
        required_terms=terms,
        csi_terms=terms,
        driver="ebs.csi.aws.com",
        handle="vol-1",
        available=False,
    )


def test_a_term_of_fields_alone_matches_every_node() -> None:
    """Upstream matches them against a node without a name, and then skips them."""
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n"]}]
    affinity = {"required": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    assert read(VOLUMES, item("pv", spec={"nodeAffinity": affinity})).required_terms is None


def _in(key: str, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm((Requirement(key, Operator.IN, values),))


IN_TREE: dict[str, tuple[dict[str, str], list[tuple[str, str]], tuple[NodeSelectorTerm, ...] | None]] = {
    "its zone is the driver's": ({}, [(ZONE, "a")], (_in(EBS_ZONE, "a"),)),
    "the old label too": ({}, [(BETA_ZONE, "a")], (_in(EBS_ZONE, "a"),)),
    "a label in place of an affinity": ({ZONE: "a__b"}, [], (_in(EBS_ZONE, "a", "b"),)),
    "an old label in place of an affinity": ({BETA_ZONE: "a"}, [], (_in(EBS_ZONE, "a"),)),
    "a region moves to its new name with the old zone": (
        {BETA_ZONE: "a"},
        [("failure-domain.beta.kubernetes.io/region", "r")],
        (
            NodeSelectorTerm(
                (
                    Requirement("topology.kubernetes.io/region", Operator.IN, ("r",)),
                    Requirement(EBS_ZONE, Operator.IN, ("a",)),
                )
            ),
        ),
    ),
    "anywhere": ({}, [], None),
}


@pytest.mark.parametrize("sentence", IN_TREE)
def test_an_in_tree_volume(sentence: str) -> None:
    """The driver that serves it has its own label for zones (`translateTopologyFromInTreeToCSI`)."""
    labels, zones, want = IN_TREE[sentence]
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]} for key, value in zones]
    spec: dict[str, Any] = {"awsElasticBlockStore": {"volumeID": "aws://a/vol-1"}}
    if terms:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    value = read(VOLUMES, item("pv", labels=labels, spec=spec))
    assert (value.driver, value.handle, value.plugin) == ("ebs.csi.aws.com", "vol-1", "kubernetes.io/aws-ebs")
    assert value.csi_terms == want


OTHERS: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "a class": (
        CLASSES,
        item()
        | {
            "provisioner": "ebs.csi.aws.com",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}],
        },
        StorageClass("uid-o", "o", "ebs.csi.aws.com", waits=True, allowed_topologies=(_in(ZONE, "a", "b"),)),
    ),
    "a class that binds at once": (
        CLASSES,
        item() | {"provisioner": "p", "volumeBindingMode": "Immediate"},
        StorageClass("uid-o", "o", "p"),
    ),
    "a node's drivers": (
        CSI_NODES,
        item(
            annotations={"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs,kubernetes.io/cinder"},
            spec={
                "drivers": [
                    {"name": "ebs.csi.aws.com", "nodeID": "i", "allocatable": {"count": 25}},
                    {"name": "efs.csi.aws.com", "nodeID": "i"},
                ]
            },
        ),
        CSINode(
            "uid-o",
            "o",
            {"ebs.csi.aws.com": 25},
            frozenset({"kubernetes.io/aws-ebs", "kubernetes.io/cinder"}),
            frozenset({"ebs.csi.aws.com", "efs.csi.aws.com"}),
        ),
    ),
    "a node without drivers": (CSI_NODES, item(spec={"drivers": None}), CSINode("uid-o", "o")),
    "a driver": (CSI_DRIVERS, item(spec={"storageCapacity": True}), CSIDriver("uid-o", "o", storage_capacity=True)),
    "a driver that pods with its volumes need": (
        CSI_DRIVERS,
        item(spec={"preventPodSchedulingIfMissing": True}),
        CSIDriver("uid-o", "o", required=True),
    ),
    "a capacity": (
        CAPACITIES,
        item(namespace="d") | {"storageClassName": "gp3", "nodeTopology": {}, "capacity": "2Gi"},
        room("d/o", 2 << 30, uid="uid-o"),
    ),
    "a capacity of some nodes": (
        CAPACITIES,
        item(namespace="d") | {"storageClassName": "gp3", "nodeTopology": {"matchLabels": {"a": "b"}}},
        room("d/o", None, on=at("a", "b"), uid="uid-o"),
    ),
    "the largest volume counts more than the capacity": (
        CAPACITIES,
        item(namespace="d") | {"storageClassName": "gp3", "capacity": "2Gi", "maximumVolumeSize": "1Gi"},
        attrs.evolve(room("d/o", 1 << 30, uid="uid-o"), available=False),
    ),
    "less than no room": (
        CAPACITIES,
        item(namespace="d") | {"storageClassName": "gp3", "nodeTopology": {}, "maximumVolumeSize": "-5"},
        room("d/o", 0, uid="uid-o"),
    ),
    "an attachment": (
        ATTACHMENTS,
        item(spec={"attacher": "ebs.csi.aws.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}),
        VolumeAttachment("uid-o", "o", "n", "ebs.csi.aws.com", "pv"),
    ),
}


@pytest.mark.parametrize("sentence", OTHERS)
def test_others(sentence: str) -> None:
    """The fields that decide are read of each kind."""
    resource, value, want = OTHERS[sentence]
    assert read(resource, value) == want


@pytest.mark.parametrize(
    ("resource", "manifest", "key"),
    [
        (CLAIMS, item("c", namespace="d", spec={"resources": {"requests": {"storage": "much"}}}), "d/c"),
        (
            CLAIMS,
            item("c", namespace="d", spec={"selector": {"matchExpressions": [{"key": "k", "operator": "Gt"}]}}),
            "d/c",
        ),
        (VOLUMES, item("v", spec={"capacity": "all"}), "v"),
        (CSI_NODES, item("n", spec={"drivers": [{"name": 1}]}), "n"),
        (VOLUMES, {"metadata": 1}, ""),
    ],
)
def test_what_cannot_be_read_is_set_aside(resource: Any, manifest: dict[str, Any], key: str) -> None:
    """It never counts as a volume, a claim or a node without limits."""
    decoded = resource.decode(json.dumps(manifest).encode())
    assert isinstance(decoded.value, Malformed)
    assert decoded.key == decoded.value.key == key

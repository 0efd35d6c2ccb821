"""
Generated storage: classes, drivers, volumes, claims in every state, and the nodes' attachments.

A claim that is bound names its volume and the volume names the claim; the uid is filled in when both are created.
"""

from random import Random

from tests.differential.vocabulary import (
    HOSTNAME,
    REGION,
    ZONE,
    ZONES,
    Object,
    chance,
    given,
    sample,
    several,
    sometimes,
)

DRIVER = "disk.example.com"
EBS = "ebs.csi.aws.com"
IN_TREE_EBS = "kubernetes.io/aws-ebs"
CLASSES = ("now", "wait", "zoned", "local", "in-tree")
STATES = ("bound", "bound", "bound", "waiting", "waiting", "static", "static", "immediate", "gone", "lost", "half")
NAMESPACES = (*("default",) * 12, "blue")
CLAIMS = 10
VOLUMES = 5
FINALIZER = "tests/held"
_TEMPLATE = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_OTHER_VOLUMES: list[Object] = [
    {"emptyDir": {}},
    {"emptyDir": {}},
    {"ephemeral": {"volumeClaimTemplate": {"spec": _TEMPLATE}}},
    {"ephemeral": {"volumeClaimTemplate": {"spec": _TEMPLATE}}},
    {"iscsi": {"targetPortal": "10.0.0.9", "iqn": "iqn.2026-01.example:disk", "lun": 0}},
    {"rbd": {"monitors": ["10.0.0.9"], "image": "disk"}},
]


def storage(dice: Random, prefix: str, nodes: list[str]) -> list[Object]:
    """Return storage objects in the order in which they can be created."""
    claims, volumes = [], []
    for number in range(CLAIMS):
        claim = _claim(dice, f"{prefix}c{number}")
        claims.append(claim)
        if "bound" in claim["metadata"]["labels"]["state"]:
            name = claim["spec"]["volumeName"]
            volumes.append(_volume(dice, name, nodes, class_name=claim["spec"]["storageClassName"], claim=claim))
    for number in range(VOLUMES):
        name = f"{prefix}free{number}"
        free = _volume(dice, name, nodes, class_name=dice.choice(["local", "local", "wait", ""]))
        if chance(dice, 0.2):
            free["spec"]["claimRef"] = _reference(dice.choice(claims))  # reserved for it, and not bound yet
        volumes.append(free)
    for claim in claims:  # some are about to be bound to an existing volume
        if claim["metadata"]["labels"]["state"] == "half":
            claim["spec"]["volumeName"] = dice.choice(volumes)["metadata"]["name"]
    return [
        *_classes(dice),
        _driver(dice),
        *(_csi_node(dice, name) for name in nodes if chance(dice, 0.8)),
        *claims,
        *volumes,
        *(_capacity(dice, f"{prefix}room{number}") for number in range(dice.randint(0, 8))),
        *(_attachment(dice, f"{prefix}a{number}", nodes, volumes) for number in range(dice.randint(0, 3))),
    ]


def ephemeral_claims(dice: Random, pods: list[Object]) -> list[Object]:
    """Return claims with the name of a pod's own ephemeral claim that belong to another owner."""
    claims = []
    for pod in pods:
        for volume in pod["spec"].get("volumes", ()):
            if "ephemeral" in volume and chance(dice, 0.5):
                claim = _claim(dice, f"{pod['metadata']['name']}-{volume['name']}")
                claim["metadata"]["namespace"] = pod["metadata"]["namespace"]
                claims.append(claim)
    return claims


def pod_volumes(dice: Random, prefix: str) -> list[Object]:
    """Return the volumes of a pod: claims that may exist, rarely one of them twice, disks, and volumes of any node."""
    sources: list[Object] = []
    for _ in range(dice.choice([1, 1, 2, 3])):
        source = _pod_volume(dice, prefix)
        if source not in sources or chance(dice, 0.1):
            sources.append(source)
    return [{"name": f"v{number}"} | source for number, source in enumerate(sources)]


def _pod_volume(dice: Random, prefix: str) -> Object:
    kind = dice.randrange(100)
    if kind < 78:
        name = f"{prefix}c{dice.randrange(CLAIMS)}" if chance(dice, 0.97) else "missing"
        return {"persistentVolumeClaim": {"claimName": name}}
    if kind < 86:
        return {"awsElasticBlockStore": {"volumeID": dice.choice(["vol-1", "vol-2"])}}
    if kind < 94:
        return {"gcePersistentDisk": given(pdName="pd-1", readOnly=chance(dice, 0.6) or None)}
    return dice.choice(_OTHER_VOLUMES)


def _classes(dice: Random) -> list[Object]:
    zones = [{"matchLabelExpressions": [{"key": ZONE, "values": sample(dice, ZONES)}]}]
    if chance(dice, 0.3):
        zones.append({"matchLabelExpressions": [{"key": REGION, "values": ["r1"]}]})
    waits = "WaitForFirstConsumer"
    return [
        _class("now", EBS, "Immediate"),
        _class("wait", DRIVER, waits),
        _class("zoned", DRIVER, waits) | {"allowedTopologies": zones},
        _class("local", "kubernetes.io/no-provisioner", waits),
        _class("in-tree", IN_TREE_EBS, waits),
    ]


def _class(name: str, provisioner: str, mode: str) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }


def _driver(dice: Random) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER},
        "spec": {"storageCapacity": chance(dice, 0.6)},
    }


def _csi_node(dice: Random, name: str) -> Object:
    drivers = [
        {
            "name": driver,
            "nodeID": name,
            **given(allocatable={"count": dice.choice([1, 1, 2, 3])} if chance(dice, 0.9) else {}),
        }
        for driver in (DRIVER, EBS)
        if chance(dice, 0.6)
    ]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": IN_TREE_EBS} if chance(dice, 0.6) else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"drivers": drivers},
    }


def _claim(dice: Random, name: str) -> Object:
    state = dice.choice(STATES)
    classes = {"waiting": ("wait", "zoned", "zoned", "in-tree"), "static": ("local",), "immediate": ("now", "", "none")}
    mode = dice.choice(["ReadWriteOnce", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"])
    spec: Object = {
        "accessModes": [mode],
        "resources": {"requests": {"storage": dice.choice(["1Gi", "4Gi", "6Gi"])}},
        "storageClassName": dice.choice(classes.get(state, CLASSES)),
    }
    if chance(dice, 0.08):
        spec["volumeMode"] = "Block"
    annotations = {}
    phase = "Pending"
    if state in ("bound", "gone", "lost"):
        spec["volumeName"] = f"{name}-volume"
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
        phase = "Lost" if state == "lost" else "Bound"
    elif state in ("static", "waiting"):
        spec |= (
            sometimes(dice, 0.4, lambda: {"selector": {"matchLabels": {"tier": dice.choice(["fast", "slow"])}}}) or {}
        )
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": dice.choice(NAMESPACES),
            "labels": {"state": state},
            "annotations": annotations,
        }
        | ({"deletionTimestamp": "now", "finalizers": [FINALIZER]} if chance(dice, 0.03) else {}),
        "spec": spec,
        "status": {"phase": phase},
    }


def _volume(dice: Random, name: str, nodes: list[str], *, class_name: str, claim: Object | None = None) -> Object:
    labels = {"tier": dice.choice(["fast", "slow"])}
    labels |= sometimes(dice, 0.3, lambda: {ZONE: dice.choice([*ZONES, "z1__z2"])}) or {}
    labels |= sometimes(dice, 0.1, lambda: {REGION: "r1"}) or {}
    spec: Object = {
        "capacity": {"storage": dice.choice(["2Gi", "5Gi", "10Gi"])},
        "accessModes": dice.choice([["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadWriteOncePod"]]),
        "storageClassName": class_name,
        "persistentVolumeReclaimPolicy": "Retain",
        **_source(dice, name),
        **given(nodeAffinity=sometimes(dice, 0.6, lambda: _node_affinity(dice, nodes))),
    }
    if chance(dice, 0.1) and "hostPath" not in spec:
        spec["volumeMode"] = "Block"
    phase = "Available" if chance(dice, 0.9) else "Released"
    if claim is not None:
        spec["claimRef"] = _reference(claim)
        phase = "Bound"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"phase": phase},
    }


def _reference(claim: Object) -> Object:
    metadata = claim["metadata"]
    return {"kind": "PersistentVolumeClaim", "namespace": metadata["namespace"], "name": metadata["name"]}


def _source(dice: Random, name: str) -> Object:
    kind = dice.randrange(100)
    if kind < 60:
        handle = name if chance(dice, 0.9) else "shared"
        return {"csi": {"driver": dice.choice([DRIVER, EBS]), "volumeHandle": handle}}
    if kind < 80:
        return {"awsElasticBlockStore": {"volumeID": name}}
    return {"hostPath": {"path": "/data"}}


def _node_affinity(dice: Random, nodes: list[str]) -> Object:
    return {"required": {"nodeSelectorTerms": several(dice, 2, lambda: {"matchExpressions": [_where(dice, nodes)]})}}


def _where(dice: Random, nodes: list[str]) -> Object:
    if chance(dice, 0.5):
        return {"key": ZONE, "operator": dice.choice(["In", "In", "NotIn"]), "values": sample(dice, ZONES)}
    return {"key": HOSTNAME, "operator": "In", "values": sample(dice, nodes, most=3)}


def _capacity(dice: Random, name: str) -> Object:
    where = dice.choice([{}, *({"matchLabels": {ZONE: zone}} for zone in ZONES)])
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "default"},
        "storageClassName": dice.choice(["wait", "zoned"]),
        **given(capacity=dice.choice(["", "5Gi", "100Gi"]), maximumVolumeSize=dice.choice(["", "", "2Gi"])),
        **({"nodeTopology": where} if chance(dice, 0.85) else {}),
    }


def _attachment(dice: Random, name: str, nodes: list[str], volumes: list[Object]) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": name},
        "spec": {
            "attacher": dice.choice([DRIVER, EBS]),
            "nodeName": dice.choice(nodes),
            "source": {"persistentVolumeName": dice.choice(volumes)["metadata"]["name"]},
        },
    }

"""The parts of a pod's spec that decide where it may run, from the wire to the model."""

from typing import Any

import msgspec
import pytest

from neuron_scheduler.kube.objects import pod_wire as wire
from neuron_scheduler.kube.objects.pod_constraints import constraints, image_name, images
from neuron_scheduler.model.pod import NO_CONSTRAINTS, Constraints
from neuron_scheduler.model.selectors import (
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    PodAffinityTerm,
    PreferredTerm,
    Requirement,
    SpreadConstraint,
)
from neuron_scheduler.model.volumes import InlineVolume

WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))


def read(**spec: Any) -> Constraints:
    """The constraints of pod `default/p` with this spec."""
    return constraints(msgspec.convert(spec, wire.PodSpec), pod="p", namespace="default")


def node_affinity(*terms: dict[str, Any], preferred: Any = None) -> dict[str, Any]:
    """An affinity with required node terms."""
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)},
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        }
    }


def test_none() -> None:
    """A pod without constraints shares the one empty value."""
    assert read() is NO_CONSTRAINTS


_RULE = [{"action": "RestartAllContainers"}]


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"containers": [{"name": "c", "restartPolicyRules": [{"action": "Restart"}]}], "hostUsers": False}, ()),
        ({"hostNetwork": True, "hostUsers": True}, ()),
        ({"hostNetwork": True}, ()),
        ({"hostNetwork": True, "hostUsers": False}, ("UserNamespacesHostNetworkSupport",)),
        ({"containers": [{"name": "c", "restartPolicyRules": _RULE}]}, ("RestartAllContainersOnContainerExits",)),
        ({"initContainers": [{"name": "c", "restartPolicyRules": _RULE}]}, ("RestartAllContainersOnContainerExits",)),
    ],
)
def test_features_that_a_node_has_to_declare(spec: dict[str, Any], want: tuple[str, ...]) -> None:
    """What component-helpers 1.36 infers: restarts of all containers, and user namespaces on the host's network."""
    assert read(**spec).required_features == want


TERMS: dict[str, tuple[dict[str, Any], NodeSelectorTerm]] = {
    "In": (
        {"matchExpressions": [{"key": "k", "operator": "In", "values": ["a", "b"]}]},
        NodeSelectorTerm((Requirement("k", Operator.IN, ("a", "b")),)),
    ),
    "Exists": (
        {"matchExpressions": [{"key": "k", "operator": "Exists"}]},
        NodeSelectorTerm((Requirement("k", Operator.EXISTS),)),
    ),
    "Gt": (
        {"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["3"]}]},
        NodeSelectorTerm((Requirement("k", Operator.GT, ("3",)),)),
    ),
    "a field": (
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        NodeSelectorTerm(fields=(Requirement("metadata.name", Operator.IN, ("n1",)),)),
    ),
    "an empty term": ({}, NodeSelectorTerm()),
    "an unknown operator": (
        {"matchExpressions": [{"key": "k", "operator": "Near"}]},
        NodeSelectorTerm(unreadable=True),
    ),
    "In without values": (
        {"matchExpressions": [{"key": "k", "operator": "In"}]},
        NodeSelectorTerm(unreadable=True),
    ),
    "Exists with values": (
        {"matchExpressions": [{"key": "k", "operator": "Exists", "values": ["a"]}]},
        NodeSelectorTerm(unreadable=True),
    ),
    "Gt of no Go integer": (
        {"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["1_000"]}]},
        NodeSelectorTerm(unreadable=True),
    ),
    "NotIn of no label value": (
        {"matchExpressions": [{"key": "k", "operator": "NotIn", "values": ["a b"]}]},
        NodeSelectorTerm(unreadable=True),
    ),
    "another field": (
        {"matchFields": [{"key": "spec.x", "operator": "In", "values": ["n1"]}]},
        NodeSelectorTerm(unreadable=True),
    ),
    "a field with two values": (
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]},
        NodeSelectorTerm(unreadable=True),
    ),
}


@pytest.mark.parametrize("sentence", TERMS)
def test_node_terms(sentence: str) -> None:
    """Terms are read as upstream parses them, and a part that does not parse matches nothing."""
    term, want = TERMS[sentence]

    assert (want,) == read(affinity=node_affinity(term)).required_terms


def test_no_required_terms() -> None:
    """An empty list of terms is not an absent one: it matches no node."""
    assert read(affinity=node_affinity()).required_terms == ()
    assert read(nodeSelector={"a": "b"}).required_terms is None
    assert read(nodeSelector={"a": "b"}).node_selector == {"a": "b"}


def test_preferred_terms() -> None:
    """Weights stay with their terms."""
    preference = {"matchExpressions": [{"key": "k", "operator": "Exists"}]}
    value = read(affinity=node_affinity({}, preferred=[{"weight": 5, "preference": preference}]))

    assert (PreferredTerm(5, NodeSelectorTerm((Requirement("k", Operator.EXISTS),))),) == value.preferred_terms


POD_TERMS: dict[str, tuple[dict[str, Any], PodAffinityTerm]] = {
    "no namespace named: the pod's own": (
        {"topologyKey": "z", "labelSelector": {"matchLabels": {"a": "b"}}},
        PodAffinityTerm("z", LabelSelector((Requirement("a", Operator.IN, ("b",)),)), frozenset({"default"})),
    ),
    "a namespace selector alone": (
        {"topologyKey": "z", "labelSelector": {}, "namespaceSelector": {}},
        PodAffinityTerm("z", LabelSelector(), frozenset(), LabelSelector()),
    ),
    "no selector: no pod": (
        {"topologyKey": "z", "namespaces": ["x"]},
        PodAffinityTerm("z", None, frozenset({"x"})),
    ),
}


@pytest.mark.parametrize("sentence", POD_TERMS)
def test_pod_terms(sentence: str) -> None:
    """Required pod affinity and anti-affinity are read in the same way."""
    term, want = POD_TERMS[sentence]
    both = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    value = read(affinity={"podAffinity": both, "podAntiAffinity": both})

    assert ((want,), (want,)) == (value.affinity, value.anti_affinity)


SPREADS: dict[str, tuple[dict[str, Any], SpreadConstraint]] = {
    "absent fields have their defaults": (
        {"labelSelector": {"matchLabels": {"app": "web"}}},
        SpreadConstraint("zone", 1, hard=True, selector=WEB),
    ),
    "every field": (
        {
            "whenUnsatisfiable": "ScheduleAnyway",
            "maxSkew": 5,
            "labelSelector": {},
            "minDomains": 3,
            "nodeAffinityPolicy": "Ignore",
            "nodeTaintsPolicy": "Honor",
        },
        SpreadConstraint(
            "zone", 5, hard=False, selector=LabelSelector(), min_domains=3, honor_affinity=False, honor_taints=True
        ),
    ),
    "no selector matches nothing, whatever keys there are": (
        {"matchLabelKeys": ["app"]},
        SpreadConstraint("zone", 1, hard=True, selector=None),
    ),
    "label keys are merged in with the pod's values, those it lacks left out": (
        {"labelSelector": {}, "matchLabelKeys": ["app", "none"]},
        SpreadConstraint("zone", 1, hard=True, selector=WEB),
    ),
    "keys that the API server has merged are not merged again": (
        {
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]},
            "matchLabelKeys": ["app"],
        },
        SpreadConstraint("zone", 1, hard=True, selector=WEB),
    ),
}


@pytest.mark.parametrize("sentence", SPREADS)
def test_spread_constraints(sentence: str) -> None:
    """Selector, policies and defaults as the API has them."""
    fields, want = SPREADS[sentence]
    constraint = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **fields}
    spec = msgspec.convert({"topologySpreadConstraints": [constraint]}, wire.PodSpec)

    assert constraints(spec, pod="p", namespace="default", pod_labels={"app": "web"}).spread == (want,)


def test_a_skew_below_one_cannot_be_read() -> None:
    """The API server refuses it, and a bound of 0 would mean every node."""
    with pytest.raises(ValueError, match="maxSkew of a topology spread constraint is 0"):
        read(topologySpreadConstraints=[{"topologyKey": "zone", "maxSkew": 0}])


def test_preferred_pod_terms() -> None:
    """They are terms with a weight; equal ones are one object."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": term}]}
    web = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
    want = PodAffinityTerm("zone", web, frozenset({"default"}), weight=7)
    value = read(affinity={"podAffinity": preferred, "podAntiAffinity": preferred})
    again = read(affinity={"podAffinity": preferred})

    assert (value.preferred_affinity, value.preferred_anti_affinity) == ((want,), (want,))
    assert (value.affinity, value.anti_affinity) == ((), ())
    assert again.preferred_affinity[0] is value.preferred_affinity[0]


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("web", "web:latest"),
        ("web:1", "web:1"),
        ("registry:5000/web", "registry:5000/web:latest"),
        ("registry:5000/web:1", "registry:5000/web:1"),
        ("web@sha256:0", "web@sha256:0"),
        ("", ":latest"),
    ],
)
def test_image_names(reference: str, name: str) -> None:
    """A name without tag means `latest`, as kubelets report it."""
    assert image_name(reference) == name


def test_a_name_longer_than_any_image_has_is_cut() -> None:
    """The API server accepts a megabyte, and every pod would keep it."""
    assert len(image_name("x" * 1_000_000)) < 2000


def test_images() -> None:
    """Init containers first, then containers; image volumes apart."""
    spec = msgspec.convert(
        {
            "initContainers": [{"name": "i", "image": "init"}],
            "containers": [{"name": "c", "image": "web:1"}, {"name": "d"}],
            "volumes": [{"name": "v", "image": {"reference": "model"}}, {"name": "w", "emptyDir": {}}],
        },
        wire.PodSpec,
    )
    assert images(spec) == (("init:latest", "web:1", ":latest"), ("model:latest",))


def test_volumes() -> None:
    """Claims without repeats, inline volumes, and disks as CSI drivers know them; other volumes do not count."""
    free = ["hostPath", "emptyDir", "configMap", "secret", "projected", "downwardAPI", "csi", "nfs", "image"]
    value = read(
        volumes=[
            {"name": "data", "persistentVolumeClaim": {"claimName": "pvc"}},
            {"name": "again", "persistentVolumeClaim": {"claimName": "pvc", "readOnly": True}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "ebs", "awsElasticBlockStore": {"volumeID": "aws://eu-west-1a/vol-1", "readOnly": True}},
            {"name": "gce", "gcePersistentDisk": {"pdName": "pd", "readOnly": True}},
            {"name": "azure", "azureDisk": {"diskName": "d", "diskURI": "/disks/d"}},
            {"name": "cinder", "cinder": {"volumeID": "c"}},
            {"name": "portworx", "portworxVolume": {"volumeID": "p"}},
            {"name": "disk", "iscsi": {"targetPortal": "t", "iqn": "q", "lun": 0}},
            *({"name": source.lower(), source: {}} for source in free),
        ],
        resourceClaims=[{"name": "neuron"}],
    )

    assert value.volume_claims == ("pvc", "p-scratch")
    assert value.ephemeral_claims == ("p-scratch",)
    assert value.disks == (
        InlineVolume("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "vol-1"),
        InlineVolume("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "pd", read_only=True),
        InlineVolume("kubernetes.io/azure-disk", "disk.csi.azure.com", "/disks/d"),
        InlineVolume("kubernetes.io/cinder", "cinder.csi.openstack.org", "c"),
        InlineVolume("kubernetes.io/portworx-volume", "pxd.portworx.com", "p"),
    )
    assert value.inline_volumes == ("disk",)
    assert value.resource_claims == ("neuron",)

"""What follows from a pod's spec: the terms that restrict it, requests, images and ports."""

from typing import Any

import msgspec
import pytest

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.pod_spec import constraints, image_name, images
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.pod import NO_CONSTRAINTS, Constraints, HostPort, Pod
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
from tests.support.wire_objects import container, encoded, pod

WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))


def constraints_of(**spec: Any) -> Constraints:
    """The constraints of pod `default/p` with this spec."""
    return constraints(msgspec.convert(spec, wire.PodSpec), pod="p", namespace="default")


def node_affinity(*terms: dict[str, Any], preferred: Any = None) -> dict[str, Any]:
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)},
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        }
    }


def test_none() -> None:
    """A pod without constraints shares the one empty value."""
    assert constraints_of() is NO_CONSTRAINTS


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
    assert constraints_of(**spec).required_features == want


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

    assert (want,) == constraints_of(affinity=node_affinity(term)).required_terms


def test_no_required_terms() -> None:
    """An empty list of terms is not an absent one: it matches no node."""
    assert constraints_of(affinity=node_affinity()).required_terms == ()
    assert constraints_of(nodeSelector={"a": "b"}).required_terms is None
    assert constraints_of(nodeSelector={"a": "b"}).node_selector == {"a": "b"}


def test_preferred_terms() -> None:
    """Weights stay with their terms."""
    preference = {"matchExpressions": [{"key": "k", "operator": "Exists"}]}
    value = constraints_of(affinity=node_affinity({}, preferred=[{"weight": 5, "preference": preference}]))

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
    value = constraints_of(affinity={"podAffinity": both, "podAntiAffinity": both})

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
        constraints_of(topologySpreadConstraints=[{"topologyKey": "zone", "maxSkew": 0}])


def test_preferred_pod_terms() -> None:
    """They are terms with a weight; equal ones are one object."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": term}]}
    web = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
    want = PodAffinityTerm("zone", web, frozenset({"default"}), weight=7)
    value = constraints_of(affinity={"podAffinity": preferred, "podAntiAffinity": preferred})
    again = constraints_of(affinity={"podAffinity": preferred})

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
        pytest.param("x" * 1_000_000, "x" * 1024 + ":latest", id="longer than any image has"),
    ],
)
def test_image_names(reference: str, name: str) -> None:
    """A name without tag means `latest`, as kubelets report it."""
    assert image_name(reference) == name


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
    value = constraints_of(
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
    assert value.disks == (InlineVolume("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "vol-1"),)
    assert value.inline_volumes == ("gce", "azure", "cinder", "portworx", "disk")
    assert value.resource_claims == ("neuron",)


DEVICE, CORE = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"


def read(**changes: Any) -> Pod:
    """Return the decoded pod."""
    decoded = PODS.decode(encoded(pod(**changes)))
    assert isinstance(decoded.value, Pod)
    return decoded.value


REQUESTS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "containers are summed, cpu in thousandths": (
        {"containers": [container(requests={"cpu": "500m", "memory": "1Gi"}), container("d", requests={"cpu": "2"})]},
        {"cpu": 2500, "memory": 1 << 30},
    ),
    "numbers that were never made canonical are read too": (
        {"containers": [container(requests={"cpu": 4, "memory": 100})]},
        {"cpu": 4000, "memory": 100},
    ),
    "limits of extended resources stand in for requests, others do not": (
        {"containers": [container(limits={DEVICE: "2", "cpu": "1"})]},
        {DEVICE: 2},
    ),
    "zeros are left out": ({"containers": [container(requests={DEVICE: "0", "cpu": "1"})]}, {"cpu": 1000}),
    "the larger of starting and running counts": (
        {
            "initContainers": [
                container("i", requests={"cpu": "3"}),
                container("s", requests={"cpu": "1"}, restartPolicy="Always"),
            ],
            "containers": [container(requests={"cpu": "1"})],
        },
        {"cpu": 3000},
    ),
    "pod level amounts replace the sums, overhead is added": (
        {
            "resources": {"requests": {"cpu": "5"}},
            "overhead": {"cpu": "250m"},
            "containers": [container(requests={"cpu": "1", DEVICE: "1"})],
        },
        {"cpu": 5250, DEVICE: 1},
    ),
}


@pytest.mark.parametrize("sentence", REQUESTS)
def test_effective_requests(sentence: str) -> None:
    """Requests are those that kube-scheduler counts."""
    spec, want = REQUESTS[sentence]

    assert want == read(spec=spec).requests


def test_a_request_for_neuron() -> None:
    """Counts and names come in spec order: sidecars, containers, init containers."""
    value = read(
        spec={
            "initContainers": [
                container("setup", limits={DEVICE: "3"}),
                container("side", limits={DEVICE: "1"}, restartPolicy="Always"),
            ],
            "containers": [container("a", limits={DEVICE: "2"}), container("b")],
        }
    )

    assert NeuronRequest(unit=Unit.DEVICE, counts=(1, 2), total=3, init_counts=(3,)) == value.neuron
    assert value.neuron_containers == ("side", "a", "setup")


def test_a_mixed_request_is_refused() -> None:
    """Devices and cores in one pod cannot be told apart in the annotation."""
    value = read(spec={"containers": [container(limits={DEVICE: "1"}), container("d", limits={CORE: "2"})]})

    assert value.neuron is None
    assert "either devices or cores" in value.refusal
    assert value.requests == {DEVICE: 1, CORE: 2}


def given(name: str, cpu: str, promised: str = "") -> dict[str, Any]:
    """What a container has, and what the kubelet has promised to it."""
    allocated = {"allocatedResources": {"cpu": promised}} if promised else {}
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **allocated}


def pending(reason: str) -> dict[str, Any]:
    """The condition of a resize that has not been carried out."""
    return {"conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]}


ONE = [container(requests={"cpu": "1"})]
NINE = [container(requests={"cpu": "9"}, limits={DEVICE: "2"})]
KINDS = {
    "initContainers": [container("once"), container("sidecar", restartPolicy="Always")],
    "containers": [container("main", restartPolicy="Never")],
}
WHOLE = {"containers": ONE, "resources": {"requests": {"cpu": "5"}}}
GIVEN_AS_A_WHOLE = {"resources": {"requests": {"cpu": "2", "memory": "7"}}, "allocatedResources": {"cpu": "3"}}
RESIZES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, int]]] = {
    "what a container has counts where it is more": (
        {"containers": ONE},
        {"containerStatuses": [given("c", "3")]},
        {"cpu": 3000},
    ),
    "what the node cannot fulfil does not count, and a status without devices frees none": (
        {"containers": NINE},
        {"containerStatuses": [given("c", "3", "4")], **pending("Infeasible")},
        {"cpu": 4000, DEVICE: 2},
    ),
    "an init container's": (KINDS, {"initContainerStatuses": [given("once", "9")]}, {"cpu": 9000}),
    "a sidecar's": (KINDS, {"initContainerStatuses": [given("sidecar", "2")]}, {"cpu": 2000}),
    "a container's, whatever its restart policy": (KINDS, {"containerStatuses": [given("main", "3")]}, {"cpu": 3000}),
    "the largest sum, 1 + 4, where one grows and another shrinks, to 3 + 1": (
        {"containers": [container("a", requests={"cpu": "1"}), container("b", requests={"cpu": "4"})]},
        {"containerStatuses": [given("a", "3", "3"), given("b", "1", "1")]},
        {"cpu": 5000},
    ),
    "the kubelet's sum for the whole pod counts before its containers'": (
        {"containers": ONE},
        {
            "resources": {"requests": {"cpu": "2"}},
            "allocatedResources": {"cpu": "3"},
            "containerStatuses": [given("c", "9")],
        },
        {"cpu": 3000},
    ),
    "the pod as a whole": (WHOLE, GIVEN_AS_A_WHOLE | pending("Deferred"), {"cpu": 5000, "memory": 7}),
    "the pod as a whole, in vain": (WHOLE, GIVEN_AS_A_WHOLE | pending("Infeasible"), {"cpu": 3000, "memory": 7}),
}


@pytest.mark.parametrize("sentence", RESIZES)
def test_resizes(sentence: str) -> None:
    """While a bound pod is resized, the larger amount counts, as in kube-scheduler 1.37; before that, its spec."""
    spec, status, requests = RESIZES[sentence]

    assert read(spec={**spec, "nodeName": "n"}, status=status).requests == requests
    assert read(spec=spec, status=status).requests == read(spec=spec).requests


def test_host_ports_of_containers_and_sidecars() -> None:
    """Only ports of containers that keep running count, and only those that are the node's."""
    ports = [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]
    value = read(
        spec={
            "initContainers": [
                container("once", ports=[{"containerPort": 1, "hostPort": 1}]),
                container("s", restartPolicy="Always", ports=[{"containerPort": 2, "hostPort": 2, "protocol": "UDP"}]),
            ],
            "containers": [container(ports=[*ports, {"containerPort": 9, "hostPort": 9, "hostIP": "10.0.0.1"}])],
        }
    )

    assert (HostPort("UDP", 2), HostPort("TCP", 8080), HostPort("TCP", 9, "10.0.0.1")) == value.host_ports
    on_host = read(spec={"hostNetwork": True, "containers": [container(ports=[{"containerPort": 5}])]})
    assert (HostPort("TCP", 5),) == on_host.host_ports


def test_containers_that_are_alike_are_read_once() -> None:
    """Pods of one workload, and all states of one pod, have it in common: reading it is most of the work."""
    containers = [container("alike", requests={"cpu": "1", DEVICE: "4"})]
    read(spec={"containers": containers})
    pending = read(name="other", spec={"containers": containers})
    bound = read(name="other", spec={"containers": containers, "nodeName": "n1"}, metadata={"labels": {"a": "b"}})

    assert pending.requests is bound.requests
    assert pending.neuron is bound.neuron
    assert pending.neuron_containers is bound.neuron_containers


def test_a_resize_is_read_for_the_pod_that_is_resized() -> None:
    """The actual resources of one pod do not count for another with equal containers."""
    containers = [container("resized", requests={"cpu": "1"})]
    given = {"containerStatuses": [{"name": "resized", "resources": {"requests": {"cpu": "3"}}}]}

    assert read(spec={"containers": containers, "nodeName": "n1"}, status=given).requests == {"cpu": 3000}
    assert read(spec={"containers": containers, "nodeName": "n1"}).requests == {"cpu": 1000}
    assert read(spec={"containers": containers}, status=given).requests == {"cpu": 1000}

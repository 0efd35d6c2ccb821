"""
The behaviour of a scheduler's writes on any API server: Bindings, Leases, Events.
"""

from typing import Any

from tests.support.sandbox_api import Api

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
LEASES = "apis/coordination.k8s.io/v1/leases"
NEW_EVENTS = "apis/events.k8s.io/v1/events"
MOMENT = "2026-11-21T08:15:04.123456Z"


async def a_binding_is_one_write(api: Api) -> None:
    """Node, annotations and condition change in one version, and nothing else does."""
    made = await api.pod("a", annotations={"kept": "1", "AWS_NEURON_IDS": "forged"}, labels={"x": "1"})
    version = (await api.got("pods"))["metadata"]["resourceVersion"]
    reply = await api.bind("a", "n1", uid=made["metadata"]["uid"], annotations={"AWS_NEURON_IDS": "0,1"})
    assert (reply.status, reply.body["kind"], reply.body["status"]) == (201, "Status", "Success")
    bound = await api.got("pods/a")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"kept": "1", "AWS_NEURON_IDS": "0,1"}
    assert bound["metadata"]["labels"] == {"x": "1"}
    assert bound["metadata"].get("generation") == made["metadata"].get("generation")
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert "reason" not in condition
    assert "message" not in condition
    await api.pod("last")
    async with api.watch("pods", resourceVersion=version) as watch:
        assert await watch.take(2) == [("MODIFIED", "a"), ("ADDED", "last")]


async def a_binding_ends_the_nomination(api: Api) -> None:
    """The bound pod has no `nominatedNodeName` any more."""
    await api.pod("a")
    nominate = {"status": {"nominatedNodeName": "n9"}}
    await api.call("PATCH", "pods/a/status", nominate, media_type=STRATEGIC)
    await api.bind("a", "n1")
    bound = await api.got("pods/a")
    assert bound["spec"]["nodeName"] == "n1"
    assert "nominatedNodeName" not in bound["status"]


async def a_binding_turns_the_condition(api: Api) -> None:
    """PodScheduled=False loses reason and message and becomes True."""
    await api.pod("a")
    failed = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    await api.call("PATCH", "pods/a/status", {"status": {"conditions": [failed]}}, media_type=STRATEGIC)
    await api.bind("a")
    (condition,) = (await api.got("pods/a"))["status"]["conditions"]
    assert condition["status"] == "True"
    assert condition.get("reason") is None
    assert condition["lastTransitionTime"]


async def a_binding_is_refused_with_upstreams_words(api: Api) -> None:
    """Bound, gated, terminating, another uid or version, absent, misnamed, without node: each has its code and text."""
    await api.pod("bound")
    await api.bind("bound", "n1")
    await api.pod("gated", schedulingGates=[{"name": "example.com/x"}])
    await api.pod("leaving")
    await api.call("PATCH", "pods/leaving", {"metadata": {"finalizers": ["example.com/x"]}}, media_type=MERGE)
    await api.call("DELETE", "pods/leaving")
    await api.pod("free")
    other = "00000000-0000-0000-0000-000000000000"
    refused: dict[str, tuple[str, dict[str, Any], int, str, str]] = {
        "bound, even to the same node": ("bound", {}, 409, "pods/binding",
                                         'pod bound is already assigned to node "n1"'),
        "gated": ("gated", {}, 409, "pods/binding", "pod gated has non-empty .spec.schedulingGates"),
        "terminating": ("leaving", {}, 409, "pods/binding",
                        "pod leaving is being deleted, cannot be assigned to a host"),
        "another uid": ("free", {"uid": other}, 409, "pods",
                        f"Precondition failed: UID in precondition: {other}, UID in object meta: "),
        "another version": ("free", {"resourceVersion": "1"}, 409, "pods",
                            "Precondition failed: ResourceVersion in precondition: 1"),
        "absent": ("absent", {}, 404, "pods", 'pods "absent" not found'),
    }  # fmt: skip
    for why, (name, metadata, code, kind, text) in refused.items():
        reply = await api.bind(name, "n1", **metadata)
        assert reply.status == code, (why, reply)
        assert reply.body["details"]["kind"] == kind, why
        assert reply.body["details"]["name"] == name, why
        assert text in reply.body["message"], (why, reply)
        if code == 409:
            assert reply.body["reason"] == "Conflict"
            assert reply.body["message"].startswith(f'Operation cannot be fulfilled on {kind} "{name}": ')
    assert (await api.bind("free", "")).status == 500
    misnamed = await api.call("POST", "pods/free/binding", _binding("other"))
    assert (misnamed.status, misnamed.body["message"]) == (400, "name in URL does not match name in Binding object")
    to_service = _binding("free") | {"target": {"kind": "Service", "name": "n1"}}
    assert (await api.call("POST", "pods/free/binding", to_service)).status == 500
    assert "nodeName" not in (await api.got("pods/free"))["spec"]
    finish = {"metadata": {"finalizers": None}}
    await api.call("PATCH", "pods/leaving", finish, media_type=MERGE)


async def a_binding_does_not_ask_for_the_node(api: Api) -> None:
    """A node that does not exist is accepted."""
    await api.pod("a")
    assert (await api.bind("a", "no-such-node")).status == 201
    assert (await api.got("pods/a"))["spec"]["nodeName"] == "no-such-node"


async def a_binding_copies_the_topology_of_its_node(api: Api) -> None:
    """Zone and region of the target become labels of the pod (1.35 and later)."""
    name, zone = f"node-{api.namespace}", "topology.kubernetes.io/zone"
    await api.made("/api/v1/nodes", {"metadata": {"name": name, "labels": {zone: "us-east-1a", "other": "x"}}})
    try:
        await api.pod("a")
        await api.bind("a", name)
        labels = (await api.got("pods/a"))["metadata"].get("labels", {})
        assert labels in ({zone: "us-east-1a"}, {})  # a real server's node informer may not know the node yet
    finally:
        await api.call("DELETE", f"/api/v1/nodes/{name}")


async def a_binding_can_poison_a_pod(api: Api) -> None:
    """Invalid annotation keys are stored, and from then on every update is 422."""
    await api.pod("a")
    assert (await api.bind("a", "n1", annotations={"not a key": "1"})).status == 201
    reply = await api.call("PATCH", "pods/a/status", {"status": {"phase": "Running"}}, media_type=MERGE)
    assert (reply.status, reply.body["reason"]) == (422, "Invalid")


async def a_lease_is_held_by_its_version(api: Api) -> None:
    """POST, PUT with the version, 409 with an old one, 422 without one."""
    spec = {"holderIdentity": "a_1", "leaseDurationSeconds": 15, "renewTime": MOMENT, "acquireTime": MOMENT}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": spec}
    made = await api.made(LEASES, body)
    assert made["spec"] == spec
    renewed = made | {"spec": spec | {"holderIdentity": "b_1", "leaseTransitions": 1}}
    assert (await api.call("PUT", f"{LEASES}/l", renewed)).status == 200
    reply = await api.call("PUT", f"{LEASES}/l", renewed)
    assert (reply.status, reply.body["reason"]) == (409, "Conflict")
    assert 'leases.coordination.k8s.io "l": the object has been modified' in reply.body["message"]
    assert (await api.call("PUT", f"{LEASES}/l", body)).status == 422
    assert (await api.call("POST", LEASES, body)).status == 409


async def times_of_leases_have_six_decimals(api: Api) -> None:
    """Go's MicroTime reads nothing else; durations must be positive."""
    for moment in ("2026-11-21T08:15:04Z", "2026-11-21T08:15:04.123Z", "yesterday"):
        body = {"metadata": {"name": "l"}, "spec": {"renewTime": moment}}
        assert (await api.call("POST", LEASES, body)).status == 400, moment
    zero = {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0}}
    assert (await api.call("POST", LEASES, zero)).status == 422


def _binding(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": "n1"},
    }


def _event(api: Api, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "p.17a"},
        "eventTime": MOMENT,
        "reportingController": "my-scheduler",
        "reportingInstance": "my-scheduler-host",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "type": "Warning",
        "note": "0/1 nodes are available: 1 Insufficient cpu.",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": api.namespace, "name": "p", "uid": "u"},
    } | fields


async def an_event_is_seen_through_both_apis(api: Api) -> None:
    """An Event written as events.k8s.io/v1 can be read and selected as core/v1, with that API's field names."""
    await api.made(NEW_EVENTS, _event(api))
    new, core = await api.got(f"{NEW_EVENTS}/p.17a"), await api.got("events/p.17a")
    assert (new["apiVersion"], new["note"], new["regarding"]["name"]) == (
        "events.k8s.io/v1",
        "0/1 nodes are available: 1 Insufficient cpu.",
        "p",
    )
    assert (core["apiVersion"], core["message"], core["involvedObject"]["name"]) == ("v1", new["note"], "p")
    assert (core["reportingComponent"], core["source"], core["firstTimestamp"]) == ("my-scheduler", {}, None)
    selector = f"involvedObject.name=p,involvedObject.uid=u,involvedObject.namespace={api.namespace}"
    assert len((await api.got("events", fieldSelector=selector))["items"]) == 1
    assert len((await api.got("events", fieldSelector="reason!=FailedScheduling"))["items"]) == 0
    assert len((await api.got(NEW_EVENTS, fieldSelector="regarding.name=p,type=Warning"))["items"]) == 1
    assert len((await api.got(NEW_EVENTS))["items"]) == 1


async def an_event_must_say_what_is_required(api: Api) -> None:
    """events.k8s.io/v1 is strict: each missing or overlong field is 422 with its name."""
    for field, value, want in (
        ("action", "", "action: Required value"),
        ("reason", "", "reason: Required value"),
        ("reportingController", "", "reportingController: Required value"),
        ("reportingInstance", "", "reportingInstance: Required value"),
        ("eventTime", None, "eventTime: Required value"),
        ("type", "", "type: Invalid value"),
        ("type", "Odd", "has invalid value: Odd"),
        ("note", "x" * 1025, "can have at most 1024 characters"),
        ("action", "x" * 129, "can have at most 128 characters"),
        ("series", {"count": 1, "lastObservedTime": MOMENT}, "series.count"),
        ("deprecatedCount", 3, "needs to be unset"),
    ):
        reply = await api.call("POST", NEW_EVENTS, _event(api, **{field: value}))
        assert reply.status == 422, (field, reply)
        assert want in reply.body["message"], (field, reply)
    assert (await api.call("POST", NEW_EVENTS, _event(api, eventTime="2026-11-21T08:15:04Z"))).status == 400
    elsewhere = _event(api, regarding={"kind": "Node", "name": "n1"})
    assert (await api.call("POST", NEW_EVENTS, elsewhere)).status == 422


async def an_event_becomes_a_series(api: Api) -> None:
    """The series may be patched; a count below 2 is 422."""
    await api.made(NEW_EVENTS, _event(api))
    series = {"series": {"count": 2, "lastObservedTime": "2026-11-21T08:16:04.000001Z"}}
    reply = await api.call("PATCH", f"{NEW_EVENTS}/p.17a", series, media_type=MERGE)
    assert (reply.status, reply.body["series"]["count"]) == (200, 2)
    reply = await api.call("PATCH", f"{NEW_EVENTS}/p.17a", {"series": {"count": 1}}, media_type=MERGE)
    assert reply.status == 422
    assert (await api.call("PATCH", f"{NEW_EVENTS}/gone", series, media_type=MERGE)).status == 404


async def an_event_of_the_old_kind_is_accepted(api: Api) -> None:
    """core/v1 requires little: the namespaces must agree."""
    about = {"kind": "Pod", "namespace": api.namespace, "name": "p"}
    old = {"metadata": {"name": "old"}, "involvedObject": about, "reason": "LeaderElection", "message": "m"}
    await api.made("events", old)
    assert (await api.got(f"{NEW_EVENTS}/old"))["note"] == "m"
    wrong = old | {"metadata": {"name": "wrong"}, "involvedObject": about | {"namespace": "other"}}
    assert (await api.call("POST", "events", wrong)).status == 422


async def everybody_may_ask_what_he_may(api: Api) -> None:
    """A SelfSubjectAccessReview is answered: an administrator is allowed."""
    attributes = {"namespace": api.namespace, "verb": "create", "resource": "pods", "subresource": "binding"}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    reply = await api.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    assert (reply.status, reply.body["status"]["allowed"]) == (201, True)


async def tokens_and_rights_of_others_are_reviewed(api: Api) -> None:
    """A TokenReview of an unknown token accepts nobody; a SubjectAccessReview allows an administrator's group."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "of-nobody"}}
    reply = await api.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert (reply.status, reply.body["status"].get("authenticated", False)) == (201, False)
    spec = {"user": "anna", "groups": ["system:masters"], "nonResourceAttributes": {"path": "/v1/fleet", "verb": "get"}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    reply = await api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert (reply.status, reply.body["status"]["allowed"]) == (201, True)

"""
How create, update, patch and delete behave, on any API server.
"""

from typing import Any

from tests.support.sandbox_api import Api, pod

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
DEVICE = "aws.amazon.com/neuron"


def _with_resources(name: str, **resources: Any) -> dict[str, Any]:
    body = pod(name)
    body["spec"]["containers"][0]["resources"] = resources
    return body


async def a_new_pod_gets_its_defaults(api: Api) -> None:
    """Names, times, scheduler, grace, priority, tolerations, requests from limits."""
    body = _with_resources("a", limits={DEVICE: "2", "cpu": "1"}, requests={"cpu": "500m"})
    made = await api.made("pods", body | {"status": {"phase": "Running"}})
    metadata, spec, status = made["metadata"], made["spec"], made["status"]
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert metadata["namespace"] == api.namespace
    assert (spec["schedulerName"], spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == (
        "default-scheduler",
        "Always",
        30,
    )
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert sorted(toleration["key"] for toleration in spec["tolerations"]) == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert spec["containers"][0]["resources"]["requests"] == {DEVICE: "2", "cpu": "500m"}
    assert status["phase"] == "Pending"
    assert "conditions" not in status


async def a_gated_pod_says_so(api: Api) -> None:
    """A pod with gates is created with the condition; gates can be removed and not added."""
    made = await api.pod("a", schedulingGates=[{"name": "example.com/x"}, {"name": "example.com/y"}])
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
        "PodScheduled",
        "False",
        "SchedulingGated",
        "Scheduling is blocked due to non-empty scheduling gates",
    )
    fewer = {"spec": {"schedulingGates": [{"name": "example.com/y"}]}}
    assert (await api.call("PATCH", "pods/a", fewer, media_type=MERGE)).status == 200
    more = [{"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": "example.com/z"}}]
    assert (await api.call("PATCH", "pods/a", more, media_type=JSON_PATCH)).status == 422


async def names_are_generated_and_unique(api: Api) -> None:
    """A prefix makes a name; a second object of a name is 409 AlreadyExists."""
    body = pod("a")
    generated = await api.made("pods", body | {"metadata": {"generateName": "ring-"}})
    assert generated["metadata"]["name"].startswith("ring-")
    assert len(generated["metadata"]["name"]) == len("ring-") + 5
    await api.made("pods", body)
    reply = await api.call("POST", "pods", body)
    assert (reply.status, reply.body["reason"]) == (409, "AlreadyExists")
    assert reply.body["message"] == 'pods "a" already exists'


async def nonsense_is_refused(api: Api) -> None:
    """Each wrong body has its code; a 422 names the field."""
    no_image = pod("a", containers=[{"name": "main"}])
    for why, body, code, want in (
        ("no containers", pod("a", containers=[]), 422, "spec.containers"),
        ("a bad name", pod("A_b"), 422, "metadata.name"),
        ("no image", no_image, 422, "spec.containers[0].image"),
        ("a bad label", pod("a", labels={"x y": "1"}), 422, "metadata.labels"),
        ("a bad value of a label", pod("a", labels={"x": "a b"}), 422, "metadata.labels"),
        ("half a device", _with_resources("a", limits={DEVICE: "500m"}), 422, "must be an integer"),
        ("request unlike limit", _with_resources("a", limits={DEVICE: "2"}, requests={DEVICE: "1"}), 422,
         f"must be equal to {DEVICE} limit of 2"),
        ("node and gates", pod("a", nodeName="n1", schedulingGates=[{"name": "x.y/z"}]), 422, "schedulingGates"),
        ("a version", pod("a") | {"metadata": {"name": "a", "resourceVersion": "7"}}, 500, "resourceVersion"),
        ("another kind", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}, 400, "Node"),
        ("no JSON", b"{", 400, ""),
        ("a list", [], 400, ""),
        ("annotations that are no strings", pod("a", annotations={"x": 1}), 400, ""),
        ("an unknown priority class", pod("a", priorityClassName="nope"), 403,
         "no PriorityClass with name nope was found"),
    ):  # fmt: skip
        reply = await api.call("POST", "pods", body)
        assert reply.status == code, (why, reply)
        assert (reply.body["kind"], reply.body["status"], reply.body["code"]) == ("Status", "Failure", code), why
        assert want in reply.body["message"], (why, reply)
        if code == 422:
            assert reply.body["details"]["causes"], why
    reply = await api.call("POST", "/api/v1/namespaces/nowhere/pods", pod("a"))
    assert (reply.status, reply.body["message"]) == (404, 'namespaces "nowhere" not found')


async def updates_need_the_version_they_were_read_at(api: Api) -> None:
    """PUT with an old version is 409 with upstream's words; another uid is 409 as well."""
    made = await api.made("configmaps", {"metadata": {"name": "a"}, "data": {"x": "1"}})
    newer = await api.call("PUT", "configmaps/a", made | {"data": {"x": "2"}})
    assert (newer.status, newer.body["data"]) == (200, {"x": "2"})
    reply = await api.call("PUT", "configmaps/a", made | {"data": {"x": "3"}})
    assert (reply.status, reply.body["reason"]) == (409, "Conflict")
    assert reply.body["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    unconditional = {"metadata": {"name": "a"}, "data": {"x": "4"}}
    assert (await api.call("PUT", "configmaps/a", unconditional)).status == 200
    other = {"metadata": {"name": "a", "uid": "00000000-0000-0000-0000-000000000000"}}
    assert (await api.call("PUT", "configmaps/a", other)).status == 409


async def an_update_that_changes_nothing_is_no_change(api: Api) -> None:
    """The version stays."""
    made = await api.pod("a", labels={"x": "1"})
    reply = await api.call("PATCH", "pods/a", {"metadata": {"labels": {"x": "1"}}}, media_type=MERGE)
    assert reply.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def patches_of_every_type_apply(api: Api) -> None:
    """Merge, strategic merge and JSON patch; an addition to what is not there is refused."""
    await api.pod("a", labels={"x": "1"})
    merged = await api.call("PATCH", "pods/a", {"metadata": {"labels": {"y": "2", "x": None}}}, media_type=MERGE)
    assert merged.body["metadata"]["labels"] == {"y": "2"}
    patch = [{"op": "add", "path": "/metadata/labels/example.com~1z", "value": "3"}]
    patched = await api.call("PATCH", "pods/a", patch, media_type=JSON_PATCH)
    assert patched.body["metadata"]["labels"] == {"y": "2", "example.com/z": "3"}
    patch[0]["path"] = "/metadata/absent/z"
    assert (await api.call("PATCH", "pods/a", patch, media_type=JSON_PATCH)).status == 422
    image = {"spec": {"containers": [{"name": "main", "image": "registry.example/app:2"}]}}
    strategic = await api.call("PATCH", "pods/a", image, media_type=STRATEGIC)
    assert strategic.body["spec"]["containers"][0]["image"] == "registry.example/app:2"
    assert (await api.call("PATCH", "pods/a", {}, media_type="text/plain")).status == 415
    assert (await api.call("PATCH", "pods/absent", {}, media_type=MERGE)).status == 404
    stale = {"metadata": {"resourceVersion": "1", "labels": {"y": "9"}}}
    assert (await api.call("PATCH", "pods/a", stale, media_type=MERGE)).status == 409


async def the_variables_of_a_policy_are_merged_by_name(api: Api) -> None:
    """So kubectl, which sends only the one that changed, leaves the others as they are."""
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    variables = [{"name": "a", "expression": "1"}, {"name": "b", "expression": "2"}]
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "variables": variables,
        "validations": [{"expression": "variables.a < variables.b"}],
    }
    meta = {"metadata": {"name": api.namespace}}
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy"}
    await api.made(policies, kind | meta | {"spec": spec})
    patch = {"spec": {"variables": [{"name": "b", "expression": "3"}]}}
    patched = await api.call("PATCH", f"{policies}/{api.namespace}", patch, media_type=STRATEGIC)
    assert patched.body["spec"]["variables"] == [variables[0], {"name": "b", "expression": "3"}]
    await api.call("DELETE", f"{policies}/{api.namespace}")


async def the_spec_of_a_pod_cannot_change(api: Api) -> None:
    """Not its node, nor its scheduler, nor its requests: 422."""
    await api.pod("a")
    for change in ({"nodeName": "n1"}, {"schedulerName": "other"}, {"nodeSelector": {"a": "b"}}):
        reply = await api.call("PATCH", "pods/a", {"spec": change}, media_type=MERGE)
        assert (reply.status, reply.body["reason"]) == (422, "Invalid"), change
        assert "pod updates may not change fields other than" in reply.body["message"]


async def status_and_spec_are_written_apart(api: Api) -> None:
    """A patch of the status leaves the spec alone, and the other way round; conditions merge by type."""
    await api.pod("a")
    first = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/0 nodes"}
    change = {"status": {"conditions": [first], "nominatedNodeName": "n9"}, "spec": {"schedulerName": "other"}}
    reply = await api.call("PATCH", "pods/a/status", change, media_type=STRATEGIC)
    assert reply.status == 200
    assert reply.body["spec"]["schedulerName"] == "default-scheduler"
    assert reply.body["status"]["nominatedNodeName"] == "n9"
    second = {"type": "example.com/Ready", "status": "True"}
    reply = await api.call("PATCH", "pods/a/status", {"status": {"conditions": [second]}}, media_type=STRATEGIC)
    conditions = {condition["type"]: condition for condition in reply.body["status"]["conditions"]}
    assert conditions["PodScheduled"]["reason"] == "Unschedulable"
    assert conditions["example.com/Ready"]["status"] == "True"
    reply = await api.call("PATCH", "pods/a", {"status": {"phase": "Failed"}}, media_type=MERGE)
    assert reply.body["status"]["phase"] == "Pending"
    clear = {"status": {"nominatedNodeName": None}}
    reply = await api.call("PATCH", "pods/a/status", clear, media_type=STRATEGIC)
    assert "nominatedNodeName" not in reply.body["status"]


async def nodes_are_created_with_their_status(api: Api) -> None:
    """Capacity is kept on create; the status is a subresource; unschedulable can be selected."""
    name, capacity = f"node-{api.namespace}", {"cpu": "4", "pods": "10", DEVICE: "16"}
    await api.made("/api/v1/nodes", {"metadata": {"name": name}, "status": {"capacity": capacity}})
    path = f"/api/v1/nodes/{name}"
    try:
        assert (await api.got(path))["status"]["capacity"] == capacity
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        assert (await api.call("PATCH", f"{path}/status", ready, media_type=STRATEGIC)).status == 200
        cordon = {"spec": {"unschedulable": True}}
        assert (await api.call("PATCH", path, cordon, media_type=STRATEGIC)).status == 200
        for selector, want in (("spec.unschedulable=true", 1), ("spec.unschedulable=false", 0)):
            nodes = await api.got("/api/v1/nodes", fieldSelector=f"{selector},metadata.name={name}")
            assert len(nodes["items"]) == want, selector
    finally:
        reply = await api.call("DELETE", path)
    assert (reply.status, reply.body["kind"], reply.body["status"]) == (200, "Status", "Success")


async def an_unbound_pod_is_gone_at_once(api: Api) -> None:
    """Nothing runs, so nothing has to end: the object is returned and deleted."""
    await api.pod("a")
    reply = await api.call("DELETE", "pods/a")
    assert (reply.status, reply.body["kind"]) == (200, "Pod")
    assert (await api.call("GET", "pods/a")).status == 404


async def a_bound_pod_terminates_until_its_kubelet_says_so(api: Api) -> None:
    """It stays with a deletion timestamp; a shorter grace counts, a longer does not; zero removes it."""
    made = await api.pod("a")
    await api.bind("a")
    deleted = (await api.call("DELETE", "pods/a")).body
    assert deleted["metadata"]["deletionTimestamp"]
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 30
    assert deleted["metadata"]["generation"] == made["metadata"]["generation"] + 1
    assert (await api.got("pods/a"))["metadata"]["deletionTimestamp"] == deleted["metadata"]["deletionTimestamp"]
    longer = await api.call("DELETE", "pods/a", query={"gracePeriodSeconds": "60"})
    assert longer.body["metadata"]["deletionGracePeriodSeconds"] == 30
    shorter = await api.call("DELETE", "pods/a", query={"gracePeriodSeconds": "5"})
    assert shorter.body["metadata"]["deletionGracePeriodSeconds"] == 5
    version = (await api.got("pods"))["metadata"]["resourceVersion"]
    async with api.watch("pods", resourceVersion=version) as watch:
        uid = {"preconditions": {"uid": made["metadata"]["uid"]}, "gracePeriodSeconds": 0}
        assert (await api.call("DELETE", "pods/a", uid)).status == 200
        assert await watch.take(2) == [("MODIFIED", "a"), ("DELETED", "a")]
    assert (await api.call("GET", "pods/a")).status == 404


async def preconditions_of_a_delete_hold(api: Api) -> None:
    """Another uid or version is 409, and the object stays; the right ones delete."""
    made = await api.pod("a")
    for field, value in (("uid", "00000000-0000-0000-0000-000000000000"), ("resourceVersion", "1")):
        reply = await api.call("DELETE", "pods/a", {"preconditions": {field: value}})
        assert (reply.status, reply.body["reason"]) == (409, "Conflict"), field
        assert "in the precondition" in reply.body["message"]
    right = {field: made["metadata"][field] for field in ("uid", "resourceVersion")}
    assert (await api.call("DELETE", "pods/a", {"preconditions": right})).status == 200


async def finalizers_hold_an_object(api: Api) -> None:
    """A deleted object with a finalizer stays until the finalizer is removed."""
    await api.made("configmaps", {"metadata": {"name": "a", "finalizers": ["example.com/x"]}})
    await api.call("DELETE", "configmaps/a")
    assert (await api.got("configmaps/a"))["metadata"]["deletionTimestamp"]
    await api.call("PATCH", "configmaps/a", {"metadata": {"finalizers": None}}, media_type=MERGE)
    assert (await api.call("GET", "configmaps/a")).status == 404


async def priority_classes_become_numbers(api: Api) -> None:
    """The class's value and policy are written into the pod; a number that contradicts it is refused."""
    name = f"class-{api.namespace}"
    klass = {"metadata": {"name": name}, "value": 7, "preemptionPolicy": "Never"}
    await api.made("/apis/scheduling.k8s.io/v1/priorityclasses", klass)
    try:
        made = await api.pod("a", priorityClassName=name)
        assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (7, "Never")
        reply = await api.call("POST", "pods", pod("b", priorityClassName=name, priority=8))
        assert (reply.status, reply.body["reason"]) == (403, "Forbidden")
    finally:
        await api.call("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")

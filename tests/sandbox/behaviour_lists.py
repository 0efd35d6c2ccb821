"""
How lists, selectors and pages behave, on any API server.
"""

from tests.support.sandbox_api import Api, names


async def a_list_carries_a_version_and_items_without_their_type(api: Api) -> None:
    """Items of a typed list have neither kind nor apiVersion, and are ordered by name."""
    for name in ("b", "a", "c"):
        await api.pod(name)
    listed = await api.got("pods")
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert names(listed) == ["a", "b", "c"]
    assert all("kind" not in item and "apiVersion" not in item for item in listed["items"])
    assert int(listed["metadata"]["resourceVersion"]) >= max(
        int(item["metadata"]["resourceVersion"]) for item in listed["items"]
    )


async def pages_show_the_list_as_it_was_when_it_began(api: Api) -> None:
    """A change between two pages is not in the later one, and both have the same version."""
    for name in ("a", "b", "c", "d"):
        await api.pod(name)
    first = await api.got("pods", limit="2")
    assert names(first) == ["a", "b"]
    await api.call("DELETE", "pods/c")
    await api.pod("cc")
    second = await api.got("pods", limit="2", **{"continue": first["metadata"]["continue"]})
    assert names(second) == ["c", "d"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert not second["metadata"].get("continue")


async def label_selectors_select(api: Api) -> None:
    """Equality, sets and existence select as documented."""
    await api.pod("a", labels={"app": "web", "size": "3"})
    await api.pod("b", labels={"app": "db"})
    await api.pod("c")
    for selector, want in {
        "app=web": ["a"],
        "app==web": ["a"],
        "app!=web": ["b", "c"],
        "app in (web, db)": ["a", "b"],
        "app notin (web)": ["b", "c"],
        "app": ["a", "b"],
        "!app": ["c"],
        "app=web,size=3": ["a"],
        "app=web,size=4": [],
    }.items():
        assert names(await api.got("pods", labelSelector=selector)) == want, selector
    assert (await api.call("GET", "pods", query={"labelSelector": "a b"})).status == 400


async def field_selectors_of_pods_select(api: Api) -> None:
    """The fields that schedulers and kubectl use, with =, == and !=."""
    await api.pod("bound")
    await api.bind("bound", "n1")
    await api.pod("free", schedulerName="my-scheduler")
    for selector, want in {
        "spec.nodeName=n1": ["bound"],
        "spec.nodeName==": ["free"],
        "spec.nodeName!=": ["bound"],
        "spec.schedulerName=my-scheduler": ["free"],
        "metadata.name=free": ["free"],
        f"metadata.namespace={api.namespace}": ["bound", "free"],
        "status.phase!=Succeeded,status.phase!=Failed": ["bound", "free"],
        "status.phase=Running": [],
        "spec.nodeName=n1,status.phase!=Pending": [],
    }.items():
        assert names(await api.got("pods", fieldSelector=selector)) == want, selector


async def unknown_fields_are_refused(api: Api) -> None:
    """A field selector that is not offered is 400, on lists and on watches."""
    reply = await api.call("GET", "pods", query={"fieldSelector": "spec.priority=1"})
    assert (reply.status, reply.body["reason"]) == (400, "BadRequest")
    assert "field label not supported: spec.priority" in reply.body["message"]


async def versions_of_the_future_and_nonsense_are_refused(api: Api) -> None:
    """A list at a version that does not exist yet is 504 with its cause, and no number is 400."""
    future = str(int((await api.got("pods"))["metadata"]["resourceVersion"]) + 10**6)
    reply = await api.call("GET", "pods", query={"resourceVersion": future})
    assert (reply.status, reply.body["reason"]) == (504, "Timeout")
    assert reply.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert (await api.call("GET", "pods", query={"resourceVersion": "abc"})).status == 400


async def a_wrong_page_token_is_refused(api: Api) -> None:
    """A continue token that no server wrote is 400."""
    reply = await api.call("GET", "pods", query={"limit": "1", "continue": "bm9uc2Vuc2U"})
    assert reply.status == 400


async def nonsense_paths_and_methods_are_refused(api: Api) -> None:
    """404 for an unknown path, 405 for an unsupported verb, both as Status objects."""
    for path in ("/api/v1/unicorns", "/apis/unicorns.example/v1/horns", "pods/p/unicorn"):
        assert (await api.call("GET", path)).status == 404, path
    reply = await api.call("GET", "pods/absent")
    assert (reply.status, reply.body["reason"]) == (404, "NotFound")
    assert reply.body["message"] == 'pods "absent" not found'
    assert reply.body["details"] == {"name": "absent", "kind": "pods"}
    lease = await api.call("GET", "apis/coordination.k8s.io/v1/leases/absent")
    assert lease.body["message"] == 'leases.coordination.k8s.io "absent" not found'
    assert lease.body["details"] == {"name": "absent", "group": "coordination.k8s.io", "kind": "leases"}
    for method, path in (("POST", "pods/absent"), ("PUT", "pods")):
        reply = await api.call(method, path, {})
        assert (reply.status, reply.body["reason"]) == (405, "MethodNotAllowed"), (method, path)

"""
How lists, selectors, pages and watches behave, on any API server.
"""

from typing import Any

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


async def _version(api: Api, path: str = "pods") -> str:
    return str((await api.got(path))["metadata"]["resourceVersion"])


async def a_watch_delivers_what_happens_after_its_version(api: Api) -> None:
    """Each change comes in order with a greater version and the object's type; a pod is marked before it is deleted."""
    await api.pod("before")
    async with api.watch("pods", resourceVersion=await _version(api)) as watch:
        await api.pod("a")
        await api.call(
            "PATCH", "pods/a", {"metadata": {"labels": {"x": "1"}}}, media_type="application/merge-patch+json"
        )
        await api.call("DELETE", "pods/a")
        events: list[Any] = [await watch.next() for _ in range(4)]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert {event["object"]["metadata"]["name"] for event in events} == {"a"}
    assert {(event["object"]["kind"], event["object"]["apiVersion"]) for event in events} == {("Pod", "v1")}
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    terminating, gone = events[2]["object"]["metadata"], events[3]["object"]["metadata"]
    assert terminating["deletionGracePeriodSeconds"] == 0
    assert gone["deletionTimestamp"] == terminating["deletionTimestamp"]
    assert gone["labels"] == {"x": "1"}


async def a_watch_without_version_begins_with_what_there_is(api: Api) -> None:
    """Without a version, or at 0, present objects arrive as ADDED first."""
    await api.pod("a")
    for query in ({}, {"resourceVersion": "0"}):
        async with api.watch("pods", **query) as watch:
            assert await watch.take(1) == [("ADDED", "a")]


async def an_object_that_leaves_the_selection_arrives_as_deleted(api: Api) -> None:
    """It carries its previous state and a new version; one that enters arrives as ADDED."""
    selector = "status.phase!=Succeeded,status.phase!=Failed"
    created = await api.pod("a")
    await api.bind("a")
    running = await api.got("pods/a")
    async with api.watch("pods", fieldSelector=selector, resourceVersion=await _version(api)) as watch:
        merge = "application/merge-patch+json"
        await api.call("PATCH", "pods/a/status", {"status": {"phase": "Succeeded"}}, media_type=merge)
        event = await watch.next()
        assert event is not None
        assert event["type"] == "DELETED"
        assert event["object"]["status"]["phase"] == "Pending"
        assert event["object"]["spec"]["nodeName"] == "n1"
        assert event["object"]["metadata"]["uid"] == created["metadata"]["uid"]
        assert int(event["object"]["metadata"]["resourceVersion"]) > int(running["metadata"]["resourceVersion"])
        labels = {"metadata": {"labels": {"seen": "no"}}}
        await api.call("PATCH", "pods/a", labels, media_type=merge)
        await api.pod("b")
        assert await watch.take(1) == [("ADDED", "b")]


async def an_object_that_enters_the_selection_arrives_as_added(api: Api) -> None:
    """A pod that is bound enters a watch on its node, and leaves the one on unbound pods."""
    await api.pod("a")
    version = await _version(api)
    async with (
        api.watch("pods", fieldSelector="spec.nodeName=n7", resourceVersion=version) as on_node,
        api.watch("pods", fieldSelector="spec.nodeName=", resourceVersion=version) as unbound,
    ):
        await api.bind("a", "n7")
        assert await on_node.take(1) == [("ADDED", "a")]
        assert await unbound.take(1) == [("DELETED", "a")]


async def label_selectors_hold_on_watches(api: Api) -> None:
    """An object that loses the label arrives as DELETED."""
    await api.pod("a", labels={"app": "web"})
    async with api.watch("pods", labelSelector="app=web", resourceVersion=await _version(api)) as watch:
        await api.pod("b")
        change = {"metadata": {"labels": {"app": "db"}}}
        await api.call("PATCH", "pods/a", change, media_type="application/merge-patch+json")
        assert await watch.take(1) == [("DELETED", "a")]


async def a_watch_ends_at_its_timeout_after_a_bookmark(api: Api) -> None:
    """A bookmark has the version that was reached without an event, the kind and an empty object."""
    await api.pod("a")
    query = {"timeoutSeconds": "3", "allowWatchBookmarks": "true", "fieldSelector": "spec.nodeName=n1"}
    async with api.watch("pods", resourceVersion=await _version(api), **query) as watch:
        unseen = await api.pod("b")
        events = await watch.rest()
    assert events
    assert {event["type"] for event in events} == {"BOOKMARK"}
    marked = events[-1]["object"]
    assert (marked["kind"], marked["apiVersion"]) == ("Pod", "v1")
    assert int(marked["metadata"]["resourceVersion"]) >= int(unseen["metadata"]["resourceVersion"])
    assert "name" not in marked["metadata"]
    assert marked["spec"] == {"containers": None}


async def a_version_of_the_future_is_answered_with_silence(api: Api) -> None:
    """The watch is accepted, and nothing that happens until its timeout is delivered."""
    future = str(int(await _version(api)) + 10**6)
    async with api.watch("pods", resourceVersion=future, timeoutSeconds="1") as watch:
        assert watch.status == 200
        await api.pod("a")
        assert await watch.rest() == []


async def other_namespaces_are_not_seen(api: Api) -> None:
    """A watch in one namespace gets no event of another; a watch in all namespaces does."""
    other = f"{api.namespace}-2"
    await api.made("/api/v1/namespaces", {"metadata": {"name": other}})
    listed = await api.got("/api/v1/pods")
    version = listed["metadata"]["resourceVersion"]
    async with (
        api.watch("pods", resourceVersion=version) as here,
        api.watch("/api/v1/pods", resourceVersion=version, labelSelector=f"test={other}") as everywhere,
    ):
        body = (await api.pod("mine", labels={"test": other})) | {"metadata": {"name": "x", "labels": {"test": other}}}
        body.pop("status")
        await api.made(f"/api/v1/namespaces/{other}/pods", body)
        await api.pod("last")
        assert await here.take(2) == [("ADDED", "mine"), ("ADDED", "last")]
        assert await everywhere.take(2) == [("ADDED", "mine"), ("ADDED", "x")]
    assert names(await api.got(f"/api/v1/namespaces/{other}/pods")) == ["x"]


async def a_version_that_is_too_old_is_refused(api: Api) -> None:
    """410, as status or as ERROR event, after which the watch ends."""
    await api.pod("a")
    async with api.watch("pods", resourceVersion="1") as watch:
        event = await watch.next()
        assert event is not None
        status = event["object"] if watch.status == 200 else event
        assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
        assert status["message"].startswith("too old resource version: 1 (")
        if watch.status == 200:
            assert event["type"] == "ERROR"
            assert await watch.next() is None

"""
How watches behave, on any API server.
"""

from typing import Any

from tests.support.sandbox_api import Api, names


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

"""The watch cache of a simulated API server is late as the scenario says, and never wrong."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox.apiserver.resources import PODS
from sandbox.apiserver.status import StatusError
from sandbox.apiserver.store import Expired, Store
from tests.simulation.clock import CLOCK
from tests.simulation.fault_windows import FaultWindows
from tests.simulation.scenario import Fault
from tests.simulation.watch_cache import LAG, WatchCache


def pod(name: str) -> dict[str, Any]:
    """A stored pod, as far as a cache looks at it."""
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": name}}


@pytest.fixture
def now() -> Iterator[Callable[[float], None]]:
    """Set the virtual clock."""

    def set_clock(seconds: float) -> None:
        CLOCK.now = seconds

    set_clock(0.0)
    yield set_clock
    set_clock(0.0)


def late(store: Store, seconds: float, until: float = 100.0) -> WatchCache:
    """A cache whose pods are so many seconds late."""
    fault = Fault(kind=LAG, at=0, until=until, target="pods", seconds=seconds)
    return WatchCache("api-1", store, FaultWindows(1, [fault], lambda _kind, _place: None))


def names(cache: WatchCache) -> list[str]:
    """The pods that the cache has."""
    return [each["metadata"]["name"] for each in cache.tables["pods"].objects("pods")]


async def test_a_change_is_seen_when_it_is_due(now: Callable[[float], None]) -> None:
    """A lag delays changes, and keeps their order."""
    store = Store()
    cache = late(store, 5.0)
    for name in ("a", "b"):
        store.put("pods", pod(name))
    version = store.version
    cache.tables["pods"].see(4.9)
    assert (names(cache), cache.tables["pods"].version) == ([], version - 2)
    cache.tables["pods"].see(5.0)
    assert (names(cache), cache.tables["pods"].version) == (["a", "b"], version)
    now(6.0)


async def test_lists_are_consistent_or_from_the_cache(
    now: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a version the list is the store's; with 0 the cache's; with a version that it lacks, there is a 504."""
    monkeypatch.setattr("tests.simulation.watch_cache.FRESH", 0.0)
    now(0.0)
    store = Store()
    cache = late(store, 5.0)
    store.put("pods", pod("a"))
    assert len((await cache.page(PODS, None, {})).objects) == 1
    assert len((await cache.page(PODS, None, {"resourceVersion": "0"})).objects) == 0
    with pytest.raises(StatusError, match="Too large resource version") as refused:
        await cache.page(PODS, None, {"resourceVersion": str(store.version)})
    assert (refused.value.code, refused.value.retry_after) == (504, 1)


async def test_a_new_cache_has_no_history(now: Callable[[float], None]) -> None:
    """After a server's restart, a watch from an old version is refused with 410."""
    now(0.0)
    store = Store()
    store.put("pods", pod("a"))
    old = store.version
    store.put("pods", pod("b"))
    cache = late(store, 0.0)
    assert names(cache) == ["a", "b"]
    with pytest.raises(Expired):
        cache.tables["pods"].position("pods", old)

"""Peers take turns: no peer's connections keep another peer waiting."""

from hypothesis import given, strategies as st

from neuron_scheduler.endpoints import turns
from neuron_scheduler.endpoints.turns import Turns


def test_one_peer_after_the_other() -> None:
    """A peer with many connections and a peer with a single one are served in turn."""
    queue = Turns[str](10)
    for item in ("a1", "a2", "a3", "b1"):
        queue.add(item[0], item)
    assert [queue.next() for _ in range(4)] == ["a1", "b1", "a2", "a3"]
    assert not len(queue)


def test_the_probe_goes_before_a_crowd() -> None:
    """A peer whose last turn is long ago goes before all peers that were served since."""
    queue = Turns[str](1000)
    queue.add("kubelet", "probe 1")
    queue.next()
    for n in range(300):
        queue.add(f"pod {n}", "scrape 1")
    for _ in range(300):
        queue.next()
    for n in range(300):
        queue.add(f"pod {n}", "scrape 2")
    queue.add("kubelet", "probe 2")
    assert queue.next() == "probe 2"


def test_the_peer_with_the_most_loses() -> None:
    """If too many wait, the peer with the most loses its newest item; among equals, the peer that was served last."""
    queue = Turns[str](3)
    assert [queue.add("crowd", item) for item in ("c1", "c2", "c3")] == [None] * 3
    assert queue.add("crowd", "c4") == "c4"
    assert queue.add("kubelet", "probe") == "c3"
    assert [queue.next(), queue.next()] == ["c1", "probe"]
    assert (queue.add("kubelet", "k"), queue.add("other", "o")) == (None, None)
    assert queue.add("new", "n") == "k", "crowd was served before kubelet"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_nothing_is_lost(steps: list[tuple[str, bool]]) -> None:
    """Each item is served once or dropped once, and each peer's own order is kept."""
    queue, added, out = Turns[tuple[str, int]](5), [], []
    served: dict[str, list[int]] = {}
    for number, (peer, serve) in enumerate(steps):
        added.append((peer, number))
        dropped = queue.add(peer, (peer, number))
        if dropped is not None:
            out.append(dropped)
        assert len(queue) <= 5
        if serve:
            out.append(queue.next())
            served.setdefault(out[-1][0], []).append(out[-1][1])
    while queue:
        out.append(queue.next())
    assert sorted(out) == sorted(added)
    assert all(numbers == sorted(numbers) for numbers in served.values())


def test_peers_are_forgotten() -> None:
    """An attacker with many addresses does not fill the memory."""
    queue = Turns[int](10)
    for n in range(turns.MOST_PEERS + 100):
        queue.add(str(n), n)
        queue.next()
    assert len(queue._last_turns) == turns.MOST_PEERS

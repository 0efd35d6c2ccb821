"""What a file begins with: of the changes to one thing the last one that counts."""

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.journal.changes import Change, PutNode, PutPod, PutUnreadablePod, RemovePod, make
from neuron_scheduler.journal.current_state import CurrentState
from tests.support.builders import node, pod

NODE = PutNode(node("n", "trn1.32xlarge"))
POD = PutPod(pod("p", devices=4, ids=(0, 1, 2, 3), on="n"))
UNREADABLE = PutUnreadablePod(pod("p", on="n"))


def state_after(*made: Change) -> tuple[list[bool], list[Change]]:
    """Return which changes were news, and the state that is left."""
    state, cluster = CurrentState(), Cluster()
    news = []
    for change in made:
        make(change, cluster)
        news.append(state.note(change))
    return news, [*state.changes(cluster)]


def test_what_is_known_of_a_pod_is_kept() -> None:
    """A pod that can no longer be read holds what it held."""
    assert state_after(NODE, POD, UNREADABLE) == ([True, True, False], [NODE, POD])


def test_a_pod_that_becomes_readable() -> None:
    """The object counts more than its name."""
    assert state_after(NODE, UNREADABLE, POD) == ([True, True, True], [NODE, POD])


def test_the_removal_of_nothing_is_no_news() -> None:
    """A pod goes once."""
    gone = RemovePod(POD.pod.uid)
    assert state_after(NODE, POD, gone, gone) == ([True, True, True, False], [NODE])

"""The oracle of evictions: who is deleted can read why."""

from typing import Any

import pytest

from tests.simulation.oracles.evictions import Evictions
from tests.support.histories import Story, pod, with_status

REASON = {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}


def judged(victim: dict[str, Any], *, author: str | None = "a", at_once: bool = False) -> list[str]:
    """Return what the oracle says when a pod is deleted, gracefully or at once."""
    story, found = Story(), list[str]()
    stored = story.put(victim)
    terminating = {**stored, "metadata": {**stored["metadata"], "deletionTimestamp": "2027-01-15T08:00:00Z"}}
    if at_once:
        story.remove(stored, author=author)
    else:
        story.put(terminating, author=author)
        story.remove(terminating, author=author)
    oracle = Evictions(report=lambda _, text: found.append(text))
    for change in story.changes:
        oracle.changed(change)
    return found


@pytest.mark.parametrize("at_once", [False, True])
def test_a_victim_is_told_why(at_once: bool) -> None:
    """One that was not, such as a pod that came under the name of a victim, is found once."""
    assert judged(with_status(pod("p"), **REASON), at_once=at_once) == []
    assert judged(pod("p"), at_once=at_once) == ["a has deleted pod default/p, whose status does not say why"]


@pytest.mark.parametrize("author", ["", None])
def test_others_may_delete_pods(author: str | None) -> None:
    """Users and controllers need no reason."""
    assert judged(pod("p"), author=author) == []

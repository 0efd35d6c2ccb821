"""The end of a leader that does not schedule; `tests/test_app.py` has the real process."""

from types import SimpleNamespace
from typing import cast

import anyio
import pytest

from neuron_scheduler.controllers.liveness import LONGEST_TAKEOVER, LeaderWatch
from neuron_scheduler.controllers.scheduling_loop import SchedulingLoop


def test_a_list_whose_pages_come_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large cluster's first list may take long, and no other replica would have it sooner."""
    now, pages = 0.0, 0
    monkeypatch.setattr(anyio, "current_time", lambda: now)
    loop = cast(SchedulingLoop, SimpleNamespace(looked_at=None))
    watch = LeaderWatch(election=None, loop=loop, is_stopping=lambda: False, listed=lambda: pages)
    watch.lead()
    for pages in range(1, 5):  # noqa: B007 - `listed` reads it
        now += LONGEST_TAKEOVER - 1
        assert watch.find_stall() is None
    now += LONGEST_TAKEOVER + 1
    assert watch.find_stall() == "pods are not listed, and no page came for 121 s"

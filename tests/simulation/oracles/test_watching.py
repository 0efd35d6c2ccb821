"""Which Bindings may stay in doubt."""

from typing import Any

import attrs
import pytest

from neuron_scheduler.kube.http.pacing import Backoff
from neuron_scheduler.kube.writes.binder import Binding
from sandbox.apiserver.store import Store
from tests.simulation.history import History
from tests.simulation.http_faults import TOO_LARGE, WEBHOOK
from tests.simulation.oracles.watching import watching
from tests.simulation.scenario import Fault, Scenario
from tests.support import builders
from tests.support.wired_scheduler import WiredScheduler


@attrs.define
class World:
    """A world in which nothing happens."""

    store: Store = attrs.field(factory=Store)
    listeners: list[Any] = attrs.field(factory=list)


@pytest.mark.parametrize(
    ("kind", "other", "unknown", "count"),
    [
        pytest.param(WEBHOOK, None, True, 0, id="a webhook tells nothing"),
        pytest.param(TOO_LARGE, "connection silent", True, 0, id="an earlier try had no answer"),
        pytest.param(TOO_LARGE, "connection silent", False, 1, id="each try was refused"),
        pytest.param(TOO_LARGE, "watch closed", True, 1, id="nothing can have cost an answer"),
        pytest.param("watch closed", "connection silent", True, 1, id="another pod"),
    ],
)
async def test_a_binding_that_stays_in_doubt(kind: str, other: str | None, unknown: bool, count: int) -> None:
    """It is no violation where nothing can tell what became of it."""
    kinds = [(kind, "hooked-a"), *([(other, "")] if other else [])]
    faults = [Fault(kind=each, at=0, until=9, target="bindings" * bool(of), detail=of) for each, of in kinds]
    history, parts = History(clock=lambda: 0.0), WiredScheduler().parts
    for informer in parts.informers:
        informer.synced.set()
    waits = builders.pod("h0", namespace="hooked-a")
    binding = Binding(
        pod=waits, path="", body=b"", node_name="n0", annotations={}, backoff=Backoff(lambda: 0.0), unknown=unknown
    )
    parts.binder._open.add(binding)
    watch = watching(Scenario(seed=0, faults=tuple(faults)), World(), {}, history)
    watch._at_rest("a", parts)
    found = [violation.text for violation in history.violations if violation.oracle == "liveness"]
    assert found == ["a has 1 Bindings without an outcome"] * count

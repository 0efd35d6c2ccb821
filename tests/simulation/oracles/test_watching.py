"""What is looked at in a replica reaches the oracles."""

from typing import Any

import attrs
import pytest

from neuron_scheduler.kube.http.pacing import Backoff
from neuron_scheduler.kube.writes.binder import Binding
from neuron_scheduler.wiring import Parts
from sandbox.apiserver.store import Store
from tests.simulation.history import History
from tests.simulation.http_faults import TOO_LARGE, WEBHOOK
from tests.simulation.oracles.watching import SAMPLES, watching
from tests.simulation.scenario import Fault, Scenario
from tests.simulation.scenarios import scenario_of
from tests.support import builders
from tests.support.histories import Story, lease, pod
from tests.support.wired_scheduler import WiredScheduler


@attrs.define
class Alive:
    """A process that lives, with so many tasks."""

    tasks: list[object]
    alive: bool = True


@attrs.define
class World:
    """A world in which nothing happens."""

    store: Store = attrs.field(factory=Store)
    listeners: list[Any] = attrs.field(factory=list)


@attrs.define
class Running:
    """A replica that runs."""

    process: Any
    parts: Parts
    ends: list[Any] = attrs.field(factory=list)


async def test_a_replica_that_runs_has_its_tasks_counted() -> None:
    """As many as a replica may have are no violation, and thousands are one."""
    for count, violations in ((100, []), (5000, ["a: 5000 tasks, with 0 Bindings on their way"])):
        history, replica = History(clock=lambda: 0.0), Running(Alive([None] * count), WiredScheduler().parts)
        watch = watching(scenario_of(0), World(), {"a": replica}, history)
        for moment in (0.0, max(SAMPLES) + 1.0):
            watch._glance("a", replica, moment)
        assert [violation.text for violation in history.violations if violation.oracle == "bounds"] == violations


@attrs.define
class Election:
    """Says whether its replica may bind."""

    may: bool

    def may_bind(self) -> bool:
        """Return it."""
        return self.may


@pytest.mark.parametrize(("may", "count"), [(True, 0), (False, 1)])
async def test_who_leads_is_looked_at_when_a_replica_writes(may: bool, count: int) -> None:
    """One that leads since a moment ago deletes by right; one that does not is found."""
    election: Any = Election(may)
    parts = attrs.evolve(WiredScheduler().parts, election=election)
    history = History(clock=lambda: 0.0)
    watch = watching(scenario_of(0), World(), {"scheduler-0": Running(Alive([]), parts)}, history)
    watch.leaders.undelayed = 2.0
    story = Story()
    story.put(lease("scheduler-0_1"), author="scheduler-0")
    victim = story.put(pod("p"), author="")
    for change in story.changes:
        watch.committed(change)
    watch.leaders.believed(story.changes[-1].at, ["scheduler-0"])
    story.wait(3.0)
    story.put({**victim, "metadata": {**victim["metadata"], "deletionTimestamp": "now"}}, author="scheduler-0")
    watch.committed(story.changes[-1])
    assert sum(violation.oracle == "leaders" for violation in history.violations) == count


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

"""The oracle of limits: what grows without end and what turns without a pause is found."""

import attrs

from tests.simulation.oracles.bounds import Bounds, containers
from tests.support.histories import Story, pod
from tests.support.wired_scheduler import WiredScheduler, names


def a_judge(found: list[str]) -> Bounds:
    """Return the oracle with small bounds."""
    return Bounds(
        report=lambda _, text: found.append(text),
        most_lines=10,
        most_requests=10,
        most_events=3,
        most_tasks=5,
        most_remembered=2,
    )


def test_a_loop_without_a_pause() -> None:
    """Log lines and requests in a minute are bounded, each minute anew; changes of the cluster explain more."""
    for count in (Bounds.logged, Bounds.requested):
        found: list[str] = []
        judge = a_judge(found)
        for at in range(30):
            count(judge, at * 6.0, "a")
        assert found == []
        for _ in range(30):
            count(judge, 200.0, "a")
        assert len(found) == 1


def test_changes_explain_requests() -> None:
    """Each committed change may cost a few requests."""
    found: list[str] = []
    judge, story = a_judge(found), Story()
    for number in range(10):
        story.put(pod(str(number)))
        judge.changed(story.changes[-1])
    for _ in range(40):
        judge.requested(1.0, "a")
    assert found == []


def test_events_about_one_pod() -> None:
    """Events about one pod are bounded, those about many are not."""
    found: list[str] = []
    judge, story = a_judge(found), Story()
    for number in range(20):
        about = {"namespace": "default", "name": f"p{number % 10}"}
        story.put({"kind": "Event", "metadata": {"name": f"e{number}"}, "involvedObject": about})
        judge.changed(story.changes[-1])
    assert found == []
    for number in range(4):
        about = {"namespace": "default", "name": "q"}
        story.put({"kind": "Event", "metadata": {"name": f"f{number}"}, "involvedObject": about})
        judge.changed(story.changes[-1])
    assert len(found) == 1


def test_tasks_that_are_left_over() -> None:
    """A Binding on its way may have a task."""
    found: list[str] = []
    judge = a_judge(found)
    judge.tasks("a", 9, 4)
    assert found == []
    judge.tasks("a", 10, 4)
    assert len(found) == 1


@attrs.define
class Part:
    """A part that remembers pods."""

    seen: dict[str, int]
    inner: list[set[str]]


Part.__module__ = "neuron_scheduler.part"


def test_pods_that_are_gone_and_remembered() -> None:
    """Whatever remembers pods that are gone for long is found, however deep it is."""
    story, found = Story(), list[str]()
    judge = a_judge(found)
    for number in range(5):
        story.remove(story.put(pod(str(number))))
    for change in story.changes:
        judge.changed(change)
    uids = [f"uid-{number}" for number in range(5)]
    part = Part(seen=dict.fromkeys(uids[:2], 1), inner=[set(uids), {"uid-0"}])
    judge.remembered("a", 10.0, part)
    judge.remembered("a", 100.0, Part({}, []))
    assert found == []
    judge.remembered("a", 100.0, part)
    assert len(found) == 1
    assert "parts.inner[0] still has 5" in found[0]


async def test_no_part_of_the_scheduler_remembers_pods_that_are_gone() -> None:
    """The walk reaches the parts of a real scheduler, and none has a pod that is gone."""
    scheduler = WiredScheduler()
    await scheduler.bind(names(30))
    known = {pod["metadata"]["uid"] for pod in scheduler.pods.values()}

    def remembering() -> list[str]:
        return [
            path
            for path, container in containers(scheduler.parts)
            if any(isinstance(key, str) and key in known for key in container)
        ]

    assert any("cluster" in path for path in remembering())
    scheduler.delete()
    assert remembering() == []

"""
Replay a journal and sum up what came of it.

With other profiles every decision is compared one by one, and the pods are also played through twice, with the
recorded profiles and with the others, which shows what a whole day would have been like.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs

from neuron_scheduler.explain.answers.replay_report import DifferentDecision, ReplayReport
from neuron_scheduler.explain.subject import ids_text
from neuron_scheduler.explain.summary import summary_of
from neuron_scheduler.journal.records import Record, Started
from neuron_scheduler.journal.replay import Difference, Outcome, Replayed, Skipped, replay
from neuron_scheduler.journal.simulation import course_of, simulate
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import counted
from neuron_scheduler.scheduling.cycle.profile import Profile

MOST_DIFFERENCES: Final = 1_000
"""Differences that a report keeps; the others are counted."""

Records = Callable[[], Iterable[Record]]
"""Returns the records once more: a journal may be larger than the memory."""


@attrs.define(eq=False)
class _Sum:
    """What was seen so far."""

    first: float = 0.0
    last: float = 0.0
    decisions: int = 0
    different: int = 0
    differences: list[DifferentDecision] = attrs.field(factory=list)
    lost: int = 0
    foreign: dict[str, int] = attrs.field(factory=dict)

    def add(self, result: Replayed | Skipped) -> None:
        if isinstance(result, Skipped):
            self.lost += result.lines
            if result.decisions:
                self.foreign[result.scheduler_name] = self.foreign.get(result.scheduler_name, 0) + result.decisions
            return
        self.decisions += 1
        self.last = result.decided.at
        self.first = self.first or self.last
        if result.difference is not None:
            self.different += 1
            if len(self.differences) < MOST_DIFFERENCES:
                self.differences.append(_shown(result.difference))

    def notes(self) -> tuple[str, ...]:
        lost = f"{counted(self.lost, 'line')} of the journal are missing: they could not be written"
        return (
            *((lost,) if self.lost else ()),
            *(
                f"{counted(number, 'decision')} about pods with schedulerName {name!r} had no profile, or followed"
                " missing lines"
                for name, number in self.foreign.items()
            ),
        )


def report(records: Records, other: Mapping[str, Profile] | None) -> ReplayReport:
    """
    Replay a journal.

    Args:
        records: called once for each pass over the journal.
        other: the profiles to decide with, by scheduler name; None for the recorded ones.

    Raises:
        ConfigurationError: the journal cannot be read.
    """
    seen = _Sum()
    for result in replay(records(), _recorded if other is None else lambda _, name: other.get(name)):
        seen.add(result)
    done = ReplayReport(
        seen.first, seen.last, seen.decisions, seen.different, tuple(seen.differences), notes=seen.notes()
    )
    if other is None:
        return done
    course, head = course_of(records()), next((r for r in records() if isinstance(r, Started)), Started(0.0, "", ()))
    then = {each.scheduler_name: each.profile for each in head.profiles if each.scheduler_name in other}
    now = {name: profile for name, profile in other.items() if name in then}
    return attrs.evolve(done, recorded=simulate(course, then), other=simulate(course, now))


def _recorded(head: Started, name: str) -> Profile | None:
    """Return the profile that the file names."""
    return next((each.profile for each in head.profiles if each.scheduler_name == name), None)


def _shown(difference: Difference) -> DifferentDecision:
    return DifferentDecision(
        difference.at,
        summary_of(difference.pod),
        _outcome(difference.pod, difference.then),
        _outcome(difference.pod, difference.now),
        difference.why,
    )


def _outcome(pod: Pod, outcome: Outcome) -> str:
    if not outcome.node_name:
        return outcome.refusal
    return f"{outcome.node_name}{ids_text(outcome.ids, pod)}"

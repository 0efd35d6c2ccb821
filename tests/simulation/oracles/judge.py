"""
Judges any history of committed changes, simulated or recorded at a real API server.

    violations = judge(recorded(events), lease=("kube-system", "my-scheduler"))
"""

from collections.abc import Iterable
from typing import Final

import attrs

from tests.simulation.oracles.allocations import Allocations
from tests.simulation.oracles.change import Change, Key, Oracle, Report, Violation
from tests.simulation.oracles.claims import Claims
from tests.simulation.oracles.cores import Cores
from tests.simulation.oracles.node_states import NodeStates
from tests.simulation.oracles.nodes_that_fit import NodesThatFit
from tests.simulation.oracles.one_binding import OneBinding
from tests.simulation.oracles.others_words import OthersWords

LEASE: Final = ("kube-system", "my-scheduler")


@attrs.frozen(kw_only=True)
class Terms:
    """
    What is promised in a history.

    Attributes:
        lease: namespace and name.
        fenced: the policy on Bindings is in place.
        lag: seconds by which an API server's watch of the Lease may be late.
        latest: seconds after its sender lost the Lease in which a Binding may still be committed.
        told_within: seconds after which a replica must know of a change.
        started_at: the wall clock, in seconds since 1970, when the clock of the history was 0.
    """

    lease: Key = LEASE
    fenced: bool = True
    lag: float = 1.0
    latest: float = 60.0
    told_within: float = 60.0
    started_at: float = 0.0


@attrs.define(eq=False)
class Changes:
    """The oracles that need committed changes only, in the order in which they must see them."""

    nodes: NodeStates
    claims: Claims
    oracles: tuple[Oracle, ...]

    def changed(self, change: Change) -> None:
        """Show all of them a change."""
        self.nodes.changed(change)
        for oracle in (self.claims, *self.oracles):
            oracle.changed(change)


def of_changes(terms: Terms, report: Report) -> Changes:
    """Return the oracles for a history with these terms."""
    nodes = NodeStates(told_within=terms.told_within, started_at=terms.started_at)
    return Changes(
        nodes,
        Claims(report=report),
        (
            Cores(report=report, nodes=nodes),
            Allocations(report=report, nodes=nodes),
            NodesThatFit(report=report, nodes=nodes),
            OneBinding(report=report, lease=terms.lease, fenced=terms.fenced, lag=terms.lag, latest=terms.latest),
            OthersWords(report=report),
        ),
    )


def judge(changes: Iterable[Change], terms: Terms | None = None) -> list[Violation]:
    """Return what was wrong in a history, in its order; the default terms are those of the manifests."""
    violations: list[Violation] = []
    now = 0.0

    def report(oracle: str, text: str) -> None:
        violations.append(Violation(now, oracle, text))

    oracles = of_changes(terms or Terms(), report)
    for change in changes:
        now = change.at
        oracles.changed(change)
    return violations

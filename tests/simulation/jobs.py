"""What goes to the process that simulates and what comes back from it: plain values, as JSON."""

import msgspec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """
    One seed to simulate.

    Attributes:
        without: names of the parts of the scenario that are left out (`reduction`).
        tells: whether the history is wanted.
        plans: whether only the scenario is wanted, and nothing is simulated.
        real_seconds: after which a simulation counts as hung; it is about this machine, so it is generous.
        cpu_seconds: likewise, of CPU: a step of the simulated process that never ends.
    """

    seed: int
    without: tuple[str, ...] = ()
    tells: bool = False
    plans: bool = False
    real_seconds: float = 600.0
    cpu_seconds: int = 300


class Violation(msgspec.Struct, frozen=True):
    """What an oracle has found, at a virtual time in seconds."""

    oracle: str
    at: float
    text: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """
    What became of a seed.

    Attributes:
        end: `planned`, `passed`, `violated`, `crashed` (the simulation itself raised), or `hung`.
        trouble: the traceback of a simulation that crashed or hung.
        parts: names of what can be left out of the scenario.
        struck: how often each kind of fault has struck.
        digest: of the history.
        cpu, virtual: seconds.
        history: if it was wanted, with the scenario.
    """

    seed: int
    end: str
    violations: tuple[Violation, ...] = ()
    trouble: str = ""
    parts: tuple[str, ...] = ()
    struck: dict[str, int] = {}
    digest: str = ""
    cpu: float = 0.0
    virtual: float = 0.0
    history: str = ""

    @property
    def oracles(self) -> frozenset[str]:
        """The oracles that failed; for a simulation that crashed or hung, that word."""
        failed = {violation.oracle for violation in self.violations}
        return frozenset(failed or ({self.end} - {"passed"}))

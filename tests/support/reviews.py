"""An API server that knows tokens and rights, for what asks it about readers."""

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from neuron_scheduler.kube.reviews import User
from neuron_scheduler.telemetry.errors import NeuronSchedulerError

TOKENS: Mapping[str, str] = MappingProxyType({"admin": "admin", "jane": "jane", "joe": "joe"})


@attrs.define(eq=False)
class FakeReviews:
    """
    An administrator; jane, who may ask, and get the pods of the namespace `a`; joe, who may not ask.

    Attributes:
        now: seconds, for a clock.
        asked: the reviews so far.
        failure: raised by every review.
    """

    now: float = 100.0
    asked: list[str] = attrs.field(factory=list)
    failure: NeuronSchedulerError | None = None

    async def user_of(self, token: str) -> User | None:
        """Return the user that a token belongs to."""
        self._ask(f"whose {token}")
        return User(username=TOKENS[token]) if token in TOKENS else None

    async def may_get(self, user: User, path: str) -> bool:
        """Let all but joe get every path."""
        self._ask(f"{user.username} {path}")
        return user.username != "joe"

    async def may_get_pods(self, user: User, namespace: str) -> bool:
        """Return the rights in the class's docstring; joe has those of jane here."""
        self._ask(f"{user.username} pods of {namespace or 'all'}")
        return user.username == "admin" or namespace == "a"

    def clock(self) -> float:
        return self.now

    def _ask(self, question: str) -> None:
        self.asked.append(question)
        if self.failure is not None:
            raise self.failure

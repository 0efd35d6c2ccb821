"""
All exceptions that this process raises on purpose; expected outcomes are values (`FitError`, `BindOutcome`).

`kube.http.pools` turns the HTTP library's exceptions into these, and no other module does.
"""

from typing import Final

import attrs

TURNED_AWAY: Final = frozenset(
    {"Too many requests, please try again later.", "The apiserver is shutting down, please try again later."}
)


class NeuronSchedulerError(Exception):
    """Anything that this process raises on purpose."""


# -- the process cannot start: exit status 2 ---------------------------------------------------------------------------


class ConfigurationError(NeuronSchedulerError):
    """A flag, a file or a right is missing or unusable; the text is one sentence that says what to do."""


# -- the process must stop: exit status 1 ------------------------------------------------------------------------------


class LeaseLostError(NeuronSchedulerError):
    """This replica no longer holds the Lease, or could not renew it in time."""


class StalledError(NeuronSchedulerError):
    """This replica leads and does not schedule, or a part of it ended on its own; another replica may work."""


# -- a call was answered, with a refusal -------------------------------------------------------------------------------


@attrs.define(eq=False)
class ApiError(NeuronSchedulerError):
    """
    The API server answered with a status other than success.

    Attributes:
        status: HTTP status code.
        reason: `Status.reason`, such as `Conflict` or `Expired`; empty if the body was no Status.
        message: the server's sentence, or the beginning of any other body.
        kind, name, uid: `Status.details`: which object the answer is about, such as `pods/binding` and the pod's name.
        retry_after: seconds the server asks to wait, at most 15; None if it does not say.
        is_status: the body was a Status of failure with this code; anything else may come from a proxy.
    """

    status: int
    reason: str = ""
    message: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    retry_after: float | None = None
    is_status: bool = False

    def __str__(self) -> str:
        return f"{self.status} {self.reason}: {self.message}" if self.reason else f"{self.status}: {self.message}"

    @property
    def is_refusal(self) -> bool:
        """Whether the API server itself refused the request for good: a 4xx Status other than 429."""
        return self.is_status and 400 <= self.status < 500 and self.status != 429

    @property
    def is_unauthorized(self) -> bool:
        return self.is_status and self.status == 401

    @property
    def is_forbidden(self) -> bool:
        return self.is_status and self.status == 403

    @property
    def is_throttled(self) -> bool:
        """Whether the API server turned the request away, by a Status or a sentence (`filters/with_retry_after.go`)."""
        return self.status == 429 and (self.is_status or self.message in TURNED_AWAY)

    @property
    def is_too_large(self) -> bool:
        """Whether etcd cannot store the object: kube-apiserver 1.36 answers 500, and 409 to a Binding."""
        return self.is_status and "etcdserver: request is too large" in self.message

    def is_gone(self, kind: str, name: str, uid: str = "") -> bool:
        """Return whether the API server says that this object does not exist; `kind` is the plural, such as `pods`."""
        return (
            self.is_refusal
            and (self.status, self.reason, self.kind) == (404, "NotFound", kind)
            and self.name in ("", name)
            and (not uid or self.uid in ("", uid))
        )


# -- a call was not answered: what it did is unknown, unless it says that nothing was sent -----------------------------


class UnreachableError(NeuronSchedulerError):
    """The connection to the API server failed before a complete answer came."""


class ApiTimeoutError(UnreachableError):
    """No complete answer came in time."""


class CredentialsError(UnreachableError):
    """There is no token to send: the plugin or the file failed, and the last good one has expired."""


class FencedError(NeuronSchedulerError):
    """The request was held back at the last moment, because this replica may no longer write; nothing was sent."""

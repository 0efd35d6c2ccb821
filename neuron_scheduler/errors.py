"""
The whole error story on one page.

Expected outcomes are values elsewhere (`FitError`, `BindOutcome`); what stands here is raised. Each class is one
sentence; whoever catches one knows from its name whether the process, the call or the configuration is at fault. No
exception of the HTTP library leaves `kube`: `kube.transport` maps them to these at the boundary and nowhere else.
"""


class NeuronSchedulerError(Exception):
    """Anything that this process raises on purpose."""


# -- the process cannot start: exit status 2 ---------------------------------------------------------------------------


class ConfigurationError(NeuronSchedulerError):
    """A flag, a file or a right is missing or unusable; the text is one sentence that says what to do."""


# -- the process must stop: exit status 1 ------------------------------------------------------------------------------


class LeaseLostError(NeuronSchedulerError):
    """This replica no longer holds the Lease, or could not renew it in time."""


class StalledError(NeuronSchedulerError):
    """This replica leads and does not schedule, or a part of it ended unasked; another one may do better."""


# -- a call was answered, with a refusal -------------------------------------------------------------------------------


class ApiError(NeuronSchedulerError):
    """
    The API server answered with a status other than success.

    Attributes:
        status: HTTP status code.
        reason: `Status.reason`, such as `Conflict` or `Expired`; empty if the body was no Status.
        message: the server's sentence, or the beginning of what else it sent.
        kind: `Status.details.kind`, such as `pods/binding`.
        retry_after: seconds the server asks to wait, within reason; None if it does not say.
    """

    def __init__(
        self, status: int, *, reason: str = "", message: str = "", kind: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.kind = kind
        self.retry_after = retry_after


# -- a call was not answered: what it did is unknown, unless it says that nothing was sent -----------------------------


class UnreachableError(NeuronSchedulerError):
    """The connection to the API server failed before a complete answer came."""


class ApiTimeoutError(UnreachableError):
    """No complete answer came in time."""


class CredentialsError(UnreachableError):
    """There is no token to send: the plugin or the file failed, and the last good one has expired."""


class OversizedLineError(UnreachableError):
    """The API server sent one watch event that is larger than any object in etcd."""


class OversizedAnswerError(UnreachableError):
    """The answer is longer than what was asked for may be; nothing of it was kept."""


class FencedError(NeuronSchedulerError):
    """The request was held back at the last moment, because this replica may no longer write; nothing was sent."""

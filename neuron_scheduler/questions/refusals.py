"""Answers to requests that cannot be answered: a `Status` as an API server's, with a sentence that says what to do."""

from neuron_scheduler.endpoints.access import status_reply
from neuron_scheduler.endpoints.exchange import Reply


def busy(sentence: str, status: int = 503) -> Reply:
    """Return the refusal of a request that may be repeated soon; 429 if too many ask."""
    reason = {429: "TooManyRequests", 503: "ServiceUnavailable"}[status]
    return status_reply(status, reason, sentence, {"Retry-After": "1"})


def bad(sentence: str, status: int = 400) -> Reply:
    """Return the refusal of a request that cannot be answered as it is."""
    return status_reply(status, {400: "BadRequest", 403: "Forbidden", 404: "NotFound"}[status], sentence)

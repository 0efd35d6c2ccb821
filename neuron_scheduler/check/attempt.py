"""
One request of `check`: a refusal or a failure is a value, so that the rest can still be read.
"""

from collections.abc import Awaitable
from typing import TypeVar

import msgspec

from neuron_scheduler.check.subjects.snapshot import Unread
from neuron_scheduler.errors import ApiError, ConfigurationError, UnreachableError
from neuron_scheduler.kube.http.status import UNKNOWN_USER

T = TypeVar("T")
K = TypeVar("K")


async def attempt(request: str, work: Awaitable[T], absent: K) -> "T | K | Unread":
    """
    Return the result; `absent` if there is no such object or kind, Unread if it was refused or has failed.

    Raises:
        ConfigurationError: the API server does not know who we are.
    """
    try:
        return await work
    except ApiError as error:
        if error.unauthorized:
            raise ConfigurationError(UNKNOWN_USER) from error
        if error.status == 404:
            return absent
        if error.forbidden:
            return Unread(request)
        return Unread(request, forbidden=False, reason=str(error))
    except (UnreachableError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        return Unread(request, forbidden=False, reason=str(error))

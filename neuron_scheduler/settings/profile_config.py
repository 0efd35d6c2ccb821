"""
How the pods of one scheduler name are served: a profile of the configuration file, and which profiles are refused.

The settings that are flags, too, are declared in `config.py`; a configuration without profiles has one, which the flags
describe. Does not judge one value for itself: `Config` does.
"""

from collections.abc import Sequence
from typing import Final

import attrs

from neuron_scheduler.settings.capacity_requests import RESERVED, CapacityRequests
from neuron_scheduler.telemetry.errors import ConfigurationError

LONGEST_LABEL: Final = 63
"""Characters of a label's value."""
VOLUME_BIND_TIMEOUT: Final = 600.0  # seconds


@attrs.frozen(kw_only=True)
class ProfileConfig:
    """
    How the pods of one scheduler name are served.

    Attributes:
        scheduler_name: the pods' `spec.schedulerName`.
        preferences: names of the preferences, the most important first; None for the default order.
        volume_bind_timeout: as in `Config`.
        capacity_requests: how an autoscaler is asked for machines; None if it is not.
    """

    scheduler_name: str
    preferences: tuple[str, ...] | None = None
    volume_bind_timeout: float = VOLUME_BIND_TIMEOUT
    capacity_requests: CapacityRequests | None = None


def require_distinct(profiles: Sequence[ProfileConfig]) -> None:
    """
    Check that there are profiles, and one for each scheduler name.

    Raises:
        ConfigurationError: there are none, or two of a name.
    """
    names = [profile.scheduler_name for profile in profiles]
    if not names:
        raise ConfigurationError("there is no profile: name at least one scheduler")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"schedulerName {twice!r} has more than one profile; keep one of them")


def require_usable_requests(profile: ProfileConfig, *, queue: bool) -> None:
    """
    Check what a profile says of capacity requests; `queue` is that of `Config`.

    Raises:
        ConfigurationError: a value is out of range, or has no effect.
    """
    if profile.scheduler_name == RESERVED:
        raise ConfigurationError(f"schedulerName {RESERVED!r} is that of placeholders, which no scheduler places")
    if profile.capacity_requests is None:
        return
    if complaint := profile.capacity_requests.complaint:
        raise ConfigurationError(f"profile {profile.scheduler_name!r}: {complaint}")
    if not queue:
        raise ConfigurationError(
            f"capacityRequests of {profile.scheduler_name!r} has no effect without a queue of our own: it is for"
            " pods that this scheduler places, not for kube-scheduler's; remove it"
        )
    if len(profile.scheduler_name) > LONGEST_LABEL:
        raise ConfigurationError(
            f"schedulerName {profile.scheduler_name!r} is longer than {LONGEST_LABEL} characters, and with"
            " capacityRequests it must fit into a label"
        )

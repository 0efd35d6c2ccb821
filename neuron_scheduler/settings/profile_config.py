"""
How the pods of one scheduler name are served: a profile of the configuration file, with its group `capacityRequests`.

The settings that are flags, too, are declared in `config.py`; a configuration without profiles has one, which the flags
describe. A profile without the group asks for no machine.
"""

from typing import Any, Final

import attrs

from neuron_scheduler.model.wording import camel
from neuron_scheduler.settings.setting import duration, limits, period, setting

VOLUME_BIND_TIMEOUT: Final = 600.0  # seconds
RESERVED: Final = "neuron-scheduler-capacity"
"""The scheduler name of placeholders, which no profile may serve."""


def _image(value: str) -> str:
    return "" if value and not any(map(str.isspace, value)) else f"is {value!r}; it must be the name of an image"


@attrs.frozen(kw_only=True)
class CapacityRequests:
    """When and how an autoscaler is asked for machines for the pods of a profile; durations are seconds."""

    wait: float = setting(
        60.0, "A pod's wait before a machine is asked for.", parse=duration, check=period("0s", "24h")
    )
    give_up: float = setting(
        1200.0,
        "A machine that has not served its pods within this time is given up, and they wait before the next one.",
        parse=duration,
        check=period("1s", "24h"),
    )
    max_machines: int = setting(4, "Machines that are asked for at the same time.", check=limits(1, 64))
    max_devices: int = setting(64, "Their devices together.", check=limits(1, 1024))
    max_machines_per_namespace: int = setting(2, "The same for the pending pods of one namespace.", check=limits(1, 64))
    max_devices_per_namespace: int = setting(32, "Their devices together.", check=limits(1, 1024))
    image: str = setting("registry.k8s.io/pause:3.10", "The image of placeholders; it never runs.", check=_image)


def path_of(field: "attrs.Attribute[Any]") -> str:
    return str(field.metadata["path"] or camel(field.name))


@attrs.frozen(kw_only=True)
class ProfileConfig:
    """
    How the pods of one scheduler name are served.

    Attributes:
        scheduler_name: the pods' `spec.schedulerName`.
        preferences: names of the preferences, the most important first; None for the default order.
        volume_bind_timeout, allow_aligned_pairs, turn_after: as in `Config`.
        capacity_requests: how an autoscaler is asked for machines; None if it is not.
    """

    scheduler_name: str
    preferences: tuple[str, ...] | None = None
    volume_bind_timeout: float = VOLUME_BIND_TIMEOUT
    allow_aligned_pairs: bool = False
    turn_after: float = 0.0
    capacity_requests: CapacityRequests | None = None

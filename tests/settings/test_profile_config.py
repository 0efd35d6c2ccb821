"""Profiles: their defaults are those of the flags, and which of them are refused."""

import attrs
import pytest

from neuron_scheduler.settings.capacity_requests import RESERVED, CapacityRequests
from neuron_scheduler.settings.config import OF_A_PROFILE, Config
from neuron_scheduler.settings.profile_config import (
    LONGEST_LABEL,
    ProfileConfig,
    require_distinct,
    require_usable_requests,
)
from neuron_scheduler.telemetry.errors import ConfigurationError

ASKS = CapacityRequests()


def test_the_defaults_are_those_of_the_flags() -> None:
    """A profile that says nothing is served as a configuration without profiles is."""
    only = Config().profiles[0]
    assert ProfileConfig(scheduler_name=only.scheduler_name) == only
    assert set(OF_A_PROFILE) < set(attrs.fields_dict(ProfileConfig))


@pytest.mark.parametrize(
    ("names", "complaint"), [([], "there is no profile"), (["a", "b", "a"], "schedulerName 'a' has more than one")]
)
def test_profiles_that_contradict_each_other(names: list[str], complaint: str) -> None:
    """There is one for each name, and at least one."""
    with pytest.raises(ConfigurationError, match=complaint):
        require_distinct([ProfileConfig(scheduler_name=name) for name in names])
    require_distinct([ProfileConfig(scheduler_name=name) for name in "ab"])


@pytest.mark.parametrize(
    ("profile", "queue", "complaint"),
    [
        (ProfileConfig(scheduler_name=RESERVED), True, "is that of placeholders"),
        (
            ProfileConfig(scheduler_name="a", capacity_requests=attrs.evolve(ASKS, wait=-1.0)),
            True,
            r"profile 'a': capacityRequests.wait is -1s",
        ),
        (ProfileConfig(scheduler_name="a", capacity_requests=ASKS), False, "has no effect without a queue"),
        (
            ProfileConfig(scheduler_name="a" * (LONGEST_LABEL + 1), capacity_requests=ASKS),
            True,
            "longer than 63 characters",
        ),
    ],
)
def test_requests_that_cannot_work(profile: ProfileConfig, queue: bool, complaint: str) -> None:
    """Each has a sentence that names the profile."""
    with pytest.raises(ConfigurationError, match=complaint):
        require_usable_requests(profile, queue=queue)
    require_usable_requests(ProfileConfig(scheduler_name="a" * LONGEST_LABEL, capacity_requests=ASKS), queue=True)
    require_usable_requests(ProfileConfig(scheduler_name="a" * (LONGEST_LABEL + 1)), queue=False)

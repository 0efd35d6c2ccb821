"""
The profiles of a configuration, by scheduler name: the process schedules with them, and the commands explain with them.
"""

from neuron_scheduler.scheduling.cycle.profile import Profile, default_profile
from neuron_scheduler.scheduling.plugins.registry import PREFERENCES
from neuron_scheduler.settings.config import Config


def profiles_of(config: Config) -> dict[str, Profile]:
    if not config.queue:
        return {}
    return {
        profile.scheduler_name: default_profile(
            profile.scheduler_name,
            preferences=PREFERENCES if profile.preferences is None else profile.preferences,
            allow_aligned_pairs=profile.allow_aligned_pairs,
        )
        for profile in config.profiles
    }

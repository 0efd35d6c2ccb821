"""Capacity requests in the configuration file: off without the group, checked field by field."""

from pathlib import Path

import pytest

from neuron_scheduler.capacity.placeholders import NAMESPACE, SCHEDULER_NAME
from neuron_scheduler.settings import config_file
from neuron_scheduler.settings.config import Config
from neuron_scheduler.settings.profile_config import RESERVED, CapacityRequests, ProfileConfig
from neuron_scheduler.telemetry.errors import ConfigurationError

HEAD = "apiVersion: neuron-scheduler/v1\nkind: NeuronSchedulerConfiguration\n"


def group(tmp_path: Path, text: str) -> CapacityRequests | None:
    """Return what a file says of the only profile; `text` follows its name."""
    path = tmp_path / "config.yaml"
    path.write_text(f"{HEAD}profiles:\n- schedulerName: my-scheduler\n{text}")
    (profile,) = Config(**config_file.read(str(path)).values).profiles
    return profile.capacity_requests


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", None, id="off"),
        pytest.param("  capacityRequests:\n", None, id="an empty key is off"),
        pytest.param("  capacityRequests: {}\n", CapacityRequests(), id="on with the defaults"),
        pytest.param(
            "  capacityRequests: {wait: 5s, giveUp: 1h, maxMachines: 1, maxDevices: 16,"
            " maxMachinesPerNamespace: 1, maxDevicesPerNamespace: 16, image: 'r.example/pause:1'}\n",
            CapacityRequests(
                wait=5.0,
                give_up=3600.0,
                max_machines=1,
                max_devices=16,
                max_machines_per_namespace=1,
                max_devices_per_namespace=16,
                image="r.example/pause:1",
            ),
            id="every field",
        ),
    ],
)
def test_what_a_file_says(tmp_path: Path, text: str, want: CapacityRequests | None) -> None:
    """A profile without the group asks for nothing."""
    assert group(tmp_path, text) == want


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{wiat: 5s}", "unknown field `profiles[0].capacityRequests.wiat`"),
        ("{wait: 5}", "`profiles[0].capacityRequests.wait`: '5' is not a duration; write 15s, 1m30s or 500ms"),
        ("[]", "`profiles[0].capacityRequests` must have fields, and it is []"),
        ("{maxMachines: 0}", "profile 'my-scheduler': capacityRequests.maxMachines is 0; it must be 1 to 64"),
        ("{giveUp: 0s}", "profile 'my-scheduler': capacityRequests.giveUp is 0s; it must be 1s to 24h"),
        ("{as: Placeholders}", "unknown field `profiles[0].capacityRequests.as`"),
        ("{image: ' '}", "capacityRequests.image is ' '; it must be the name of an image"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, complaint: str) -> None:
    """Each is named with its path."""
    with pytest.raises(ConfigurationError) as raised:
        group(tmp_path, f"  capacityRequests: {text}\n")
    assert complaint in str(raised.value)


def test_contradictions() -> None:
    """Nobody may serve placeholders, and kube-scheduler's pods get no machine."""
    asking = CapacityRequests()
    with pytest.raises(ConfigurationError, match="that of placeholders"):
        Config(profiles=(ProfileConfig(scheduler_name=RESERVED),))
    profiles = (ProfileConfig(scheduler_name="my-scheduler", capacity_requests=asking),)
    with pytest.raises(ConfigurationError, match="has no effect without a queue of our own"):
        Config(queue=False, extender_bind_address="127.0.0.1:1", profiles=profiles)


def test_the_reserved_name_is_that_of_placeholders() -> None:
    """The settings know no other room, so the name is written there a second time."""
    assert RESERVED == SCHEDULER_NAME == NAMESPACE


def test_the_defaults() -> None:
    """They are in range."""
    profile = ProfileConfig(scheduler_name="my-scheduler", capacity_requests=CapacityRequests())
    assert Config(profiles=(profile,)).profiles == (profile,)

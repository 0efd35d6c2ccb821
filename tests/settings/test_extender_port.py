"""Where the extender listens; which settings contradict each other is in `test_config`."""

import pytest

from neuron_scheduler.settings.config import Config
from neuron_scheduler.settings.extender_port import DEFAULT, address_and_port
from neuron_scheduler.telemetry.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (DEFAULT, ("0.0.0.0", 12345)),
        ("10.0.0.7:1", ("10.0.0.7", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("[::]:12345", ("::", 12345)),
    ],
)
def test_addresses_with_ports(text: str, read: tuple[str, int]) -> None:
    """An address is an IP address, IPv6 in brackets; without one it is all addresses."""
    assert address_and_port(text) == read
    assert Config(extender_bind_address=text).extender_bind_address == text


@pytest.mark.parametrize(
    "text", ["12345", "a:1", "10.0.0.7", "10.0.0.7:", ":0", ":65536", "::1:5", "[1.2.3.4]:5", ":\u0661"]
)
def test_no_addresses_with_ports(text: str) -> None:
    """The error says how to write it."""
    with pytest.raises(
        ConfigurationError, match=r"--extender-bind-address is .*; it must be ADDRESS:PORT, such as :12345"
    ):
        Config(extender_bind_address=text)

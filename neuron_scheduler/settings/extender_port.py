"""
What the settings of the extender's port may be, by themselves and together.

Does not depend on where they are declared: `config` is.
"""

import ipaddress
from collections.abc import Mapping
from typing import Final

from neuron_scheduler.settings.endpoint_ports import require_pair
from neuron_scheduler.telemetry.errors import ConfigurationError

DEFAULT: Final = ":12345"
"""The default address of the command `extender`, with the port of AWS's extension."""


def address_and_port(text: str) -> tuple[str, int]:
    """
    Return the IP address and the port of `10.0.0.7:12345` or `[::1]:12345`; `:12345` means all addresses.

    Raises:
        ValueError: the text is something else.
    """
    address, colon, port = text.rpartition(":")
    if address[:1] == "[" and address[-1:] == "]":
        address = str(ipaddress.IPv6Address(address[1:-1]))
    elif address:
        address = str(ipaddress.IPv4Address(address))
    if not (colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{port!r} is not a port")
    return address or "0.0.0.0", int(port)  # noqa: S104 - it was asked for


def listening(value: str) -> str:
    """Accept an address and a port to listen on, or nothing."""
    try:
        if value:
            address_and_port(value)
    except ValueError:
        return f"is {value!r}; it must be ADDRESS:PORT, such as :12345 (all addresses), 10.0.0.7:12345 or [::1]:12345"
    return ""


def require_consistent(
    address: str, *, cert_file: str, key_file: str, client_ca_file: str, others: Mapping[str, int], needed: bool
) -> None:
    """
    Check the settings of the port.

    Args:
        address: `--extender-bind-address`; empty if the extender is off.
        cert_file: `--extender-tls-cert-file`, empty if there is none; likewise the next two.
        key_file: `--extender-tls-private-key-file`.
        client_ca_file: `--extender-client-ca-file`.
        others: the process's other ports, by their flags.
        needed: whether there is nothing to do without the extender.

    Raises:
        ConfigurationError: two contradict each other.
    """
    if needed and not address:
        raise ConfigurationError("the command extender needs --extender-bind-address")
    require_pair("--extender-tls", cert_file=cert_file, key_file=key_file)
    if client_ca_file and not cert_file:
        raise ConfigurationError(
            "--extender-client-ca-file needs --extender-tls-cert-file: only TLS shows who the client is"
        )
    if cert_file and not address:
        raise ConfigurationError("--extender-tls-cert-file needs --extender-bind-address")
    for flag, port in others.items():
        if address and port == address_and_port(address)[1]:
            raise ConfigurationError(f"{flag} and --extender-bind-address are both {port}: choose another port")

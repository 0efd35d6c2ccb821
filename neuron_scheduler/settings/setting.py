"""
What a setting is: its flag, its path in the configuration file, its help text, and the values that it may have.

`config.py` declares each setting once, with `setting`; the command line and the configuration file are derived from
that.
"""

import ipaddress
import re
from collections.abc import Callable
from typing import Any, Final

import attrs

_DURATION_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)

Check = Callable[[Any], str]
"""Returns what is wrong with a value, to be read after the setting's name; empty if nothing is."""


def duration(text: str) -> float:
    """Return the seconds of a Go duration (`15s`, `1m30s`, `500ms`); `0` needs no unit, and none is negative."""
    parts = _DURATION_PART.findall(text)
    if text != "0" and (not parts or "".join(number + unit for number, unit in parts) != text):
        raise ValueError(f"{text!r} is not a duration; write 15s, 1m30s or 500ms")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def boolean(text: str) -> bool:
    """Return what Go's `strconv.ParseBool` returns."""
    if text in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if text in {"0", "f", "F", "false", "FALSE", "False"}:
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def read_value(parse: Callable[[str], Any], text: str) -> Any:
    """Return the value of a flag, or of a field of the file; a ValueError says what to write instead."""
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a number" if parse in {int, float} else str(error)) from None


_PARSERS: Final[dict[type, Callable[[str], Any]]] = {bool: boolean, int: int, float: float, str: str}
_METAVARS: Final[dict[Callable[[str], Any], str]] = {boolean: "BOOL", duration: "DURATION", int: "N", float: "N"}


def setting(
    default: Any,
    text: str,
    *,
    parse: Callable[[str], Any] | None = None,
    metavar: str = "",
    shown: str = "",
    path: str = "",
    check: Check | None = None,
) -> Any:
    """
    Declare a field that is also a flag and a field of the configuration file.

    Args:
        default: the field's default.
        text: the help text.
        parse: reads the value from a flag or from the file; None for what reads values of the default's type.
        metavar: the placeholder in the help; empty for the one that `parse` usually has.
        shown: the default as the help shows it, if not the value itself.
        path: where the file has it, such as `clientConnection.qps`; empty for the field's name in camel case.
        check: returns what is wrong with a value, whether it comes from a flag or from the file.
    """
    parse = parse or _PARSERS[type(default)]
    metadata = {
        "help": text,
        "parse": parse,
        "metavar": metavar or _METAVARS.get(parse, ""),
        "shown": shown,
        "path": path,
        "check": check,
    }
    return attrs.field(default=default, metadata=metadata)


def settings_of(kind: type[Any]) -> "tuple[attrs.Attribute[Any], ...]":
    return tuple(field for field in attrs.fields(kind) if "parse" in field.metadata)


def flag(name: str) -> str:
    """Return the flag of a field: `--bind-address` for `bind_address`."""
    return "--" + name.replace("_", "-")


def limits(low: float, high: float) -> Check:
    def check(value: float) -> str:
        number = f"{value:{'' if isinstance(value, int) else 'g'}}"  # an int may be no float
        return "" if low <= value <= high else f"is {number}; it must be {low:g} to {high:g}"

    return check


def period(low: str, high: str) -> Check:
    def check(value: float) -> str:
        return "" if duration(low) <= value <= duration(high) else f"is {value:g}s; it must be {low} to {high}"

    return check


def one_of(*values: str) -> Check:
    def check(value: str) -> str:
        return "" if value in values else f"is {value!r}; it must be {' or '.join(values)}"

    return check


def kubernetes_name(value: str) -> str:
    if _NAME.fullmatch(value):
        return ""
    return f"is {value!r}; it must be a Kubernetes name: lower-case letters, digits, '-' and '.'"


def ip_address(value: str) -> str:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return (
            f"is {value!r}; it must be an IP address without brackets, such as 127.0.0.1 or ::1;"
            " 0.0.0.0 means all addresses, IPv4 and IPv6"
        )
    return ""


def address_and_port(text: str) -> tuple[str, int]:
    """Return address and port of `10.0.0.7:12345` or `[::1]:12345`; `:12345` means all. ValueError: it is neither."""
    address, colon, port = text.rpartition(":")
    if address[:1] == "[" and address[-1:] == "]":
        address = str(ipaddress.IPv6Address(address[1:-1]))
    elif address:
        address = str(ipaddress.IPv4Address(address))
    if not (colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{port!r} is not a port")
    return address or "0.0.0.0", int(port)  # noqa: S104 - it was asked for


def listen_address(value: str) -> str:
    try:
        if value:
            address_and_port(value)
    except ValueError:
        return f"is {value!r}; it must be ADDRESS:PORT, such as :12345 (all addresses), 10.0.0.7:12345 or [::1]:12345"
    return ""

"""
The format of the configuration file, derived from what `config.py` declares.

A field that is not declared is refused, with its path. Does not read files or judge values beyond their type.
"""

import difflib
from collections.abc import Iterator, Mapping
from types import GenericAlias
from typing import Any, Final

import attrs
import msgspec
from msgspec import UNSET, UnsetType

from neuron_scheduler.scheduling.plugins.registry import PREFERENCES
from neuron_scheduler.settings.capacity_requests import CapacityRequests, path_of
from neuron_scheduler.settings.config import OF_A_PROFILE, settings
from neuron_scheduler.settings.profile_config import ProfileConfig
from neuron_scheduler.settings.setting import camel, duration

PATHS: Final[Mapping[str, str]] = {
    field.name: field.metadata["path"] or camel(field.name) for field in settings() if field.name not in OF_A_PROFILE
}
"""Where the file has each field of `Config`, except those in `OF_A_PROFILE`, which are in the profiles."""


class Seconds(float):
    """A Go duration in the file."""

    __slots__ = ()


class PreferenceName(str):
    """One of `PREFERENCES` in the file."""

    __slots__ = ()


_OF_A_PROFILE: Final = {name: camel(name) for name in OF_A_PROFILE if name != "scheduler_name"}


def _type_of(field: "attrs.Attribute[Any]") -> Any:
    return Seconds if field.metadata["parse"] is duration else field.type


_TYPES: Final = {field.name: _type_of(field) for field in settings()}


def settings_at(paths: Mapping[str, str], base: type[msgspec.Struct] = msgspec.Struct) -> type[msgspec.Struct]:
    """
    Return a struct of optional settings, with a struct for each group in it.

    Args:
        paths: where each field of `Config` is, as seen from the struct: `port`, or `clientConnection.burst`.
        base: a struct that has the other fields.
    """
    types, groups = dict[str, Any](), dict[str, dict[str, str]]()
    for name, path in paths.items():
        head, _, rest = path.partition(".")
        if rest:
            groups.setdefault(head, {})[name] = rest
        else:
            types[head] = _TYPES[name]
    types |= {head: settings_at(within) for head, within in groups.items()}
    fields = [(name, kind | UnsetType, UNSET) for name, kind in types.items()]
    return msgspec.defstruct("Settings", fields, bases=(base,), forbid_unknown_fields=True, kw_only=True)


_CapacityRequests: Final = msgspec.defstruct(
    "CapacityRequests",
    [(field.name, _type_of(field) | UnsetType, UNSET) for field in attrs.fields(CapacityRequests)],
    rename={field.name: path_of(field) for field in attrs.fields(CapacityRequests)},
    forbid_unknown_fields=True,
)


class _Profile(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A profile, without the settings that are flags too."""

    scheduler_name: str
    preferences: list[PreferenceName] | None = None
    capacity_requests: _CapacityRequests | None = None  # type: ignore[valid-type]  # a type that is made

    def __post_init__(self) -> None:
        names = self.preferences or []
        duplicate = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if duplicate is not None:
            raise ValueError(f"duplicate preference {duplicate!r}; list each preference once")

    def config(self) -> ProfileConfig:
        """Return what the profile sets."""
        names = self.preferences
        group: Any = self.capacity_requests
        return ProfileConfig(
            scheduler_name=self.scheduler_name,
            preferences=None if names is None else tuple(map(str, names)),
            capacity_requests=None if group is None else _capacity_requests(group),
            **dict(values(self, _OF_A_PROFILE)),
        )


def _capacity_requests(group: msgspec.Struct) -> CapacityRequests:
    """Return what the group sets; ConfigurationError if a value is out of range."""
    return CapacityRequests(**dict(values(group, {field.name: field.name for field in attrs.fields(CapacityRequests)})))


def values(configuration: msgspec.Struct, paths: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the settings that a struct has, by the names of their fields in `Config`."""
    for name, path in paths.items():
        value: Any = configuration
        for step in path.split("."):
            value = getattr(value, step, UNSET)
        if value is not UNSET:
            yield name, float(value) if isinstance(value, Seconds) else value


def custom(wanted: type, value: object) -> object:
    """
    Read what YAML has no type for.

    Raises:
        ValueError: it cannot be read; msgspec adds the path.
    """
    if wanted is Seconds:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not a duration; write 15s, 1m30s or 500ms")
        return Seconds(duration(value))
    if wanted is PreferenceName and value not in PREFERENCES:
        meant = difflib.get_close_matches(str(value), PREFERENCES, n=1)
        remedy = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(PREFERENCES)}"
        raise ValueError(f"there is no preference {value!r}; {remedy}")
    return wanted(value)


def format_of(paths: Mapping[str, str], profile: type[msgspec.Struct], *, optional: bool) -> type[msgspec.Struct]:
    """Return the struct of a whole file, with profiles, `optional` or not, and with the settings at these paths."""
    profiles = GenericAlias(list, (profile,))
    field = ("profiles", profiles | UnsetType, UNSET) if optional else ("profiles", profiles)
    kind = msgspec.defstruct("Kind", [("apiVersion", str), ("kind", str), field])
    return settings_at(paths, kind)


FORMAT: Final = format_of(PATHS, settings_at(_OF_A_PROFILE, _Profile), optional=True)
"""The struct of a file of our own kind."""

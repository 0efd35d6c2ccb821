"""
Settings from a file: reads what `--config` names, strictly, and names the path of what is wrong.

The file has every setting that `config.py` declares, each with the value that its flag would have, and several
profiles. An unknown field is refused: a misspelt one would be noticed too late. `Config` judges the values.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import yaml

from neuron_scheduler.model.wording import camel
from neuron_scheduler.scheduling.plugins.registry import PREFERENCES
from neuron_scheduler.settings.config import OF_A_PROFILE, settings
from neuron_scheduler.settings.profile_config import CapacityRequests, ProfileConfig, path_of
from neuron_scheduler.settings.setting import flag, read_value, settings_of
from neuron_scheduler.telemetry.errors import ConfigurationError

API_VERSION: Final = "neuron-scheduler/v1"
KIND: Final = "NeuronSchedulerConfiguration"

_FLAG: Final = re.compile(r"--([a-z][a-z-]*)")
PATHS: Final[Mapping[str, str]] = {field.name: path_of(field) for field in settings() if field.name not in OF_A_PROFILE}
"""Where the file has each field of `Config`, except those in `OF_A_PROFILE`, which are in the profiles."""
_Paths = Mapping[str, "attrs.Attribute[Any]"]
_AT_THE_TOP: Final[_Paths] = {PATHS[field.name]: field for field in settings() if field.name in PATHS}
_IN_A_PROFILE: Final[_Paths] = {camel(field.name): field for field in settings() if field.name in OF_A_PROFILE}
_IN_REQUESTS: Final[_Paths] = {path_of(field): field for field in settings_of(CapacityRequests)}


@attrs.frozen
class ConfigFile:
    """
    What a file sets.

    Attributes:
        values: fields of `Config`.
    """

    path: str
    values: Mapping[str, Any]

    def in_its_words(self, complaint: str, overridden: frozenset[str]) -> str:
        """Return a complaint of `Config`, with the file's fields in place of the flags that were not given."""
        paths = {flag(name): PATHS[name] for name in self.values if name in PATHS and name not in overridden}
        translated = _FLAG.sub(lambda match: paths.get(match[0], match[0]), complaint)
        return translated if translated == complaint and "--" in complaint else f"{self.path}: {translated}"


def read(path: str) -> ConfigFile:
    """Read a configuration file, strictly; a ConfigurationError names the path of what is wrong."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--config: {path} cannot be read: {error}") from None
    return parse(path, text)


def parse(path: str, text: str) -> ConfigFile:
    """Read the text of a configuration file, as `read` does."""
    try:
        return ConfigFile(path, _values(yaml.load(text, Loader=_SingleKeys)))  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError) as error:
        complaint = str(error).replace(' in "<unicode string>",', " at")
        raise ConfigurationError(f"{path}: {' '.join(complaint.split())}") from None


class _SingleKeys(yaml.CSafeLoader):
    """Reads YAML, but refuses a duplicate key, of which YAML's own reader would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for i, key in enumerate(keys):
            if any(key.value == other.value for other in keys[:i]):
                raise ValueError(f"line {key.start_mark.line + 1}: duplicate key {key.value}")
        return super().construct_mapping(node, deep)


def _values(document: object) -> dict[str, Any]:
    fields = dict(document) if isinstance(document, dict) else {}
    version, kind = fields.pop("apiVersion", None), fields.pop("kind", None)
    if kind == "ConfigMap":
        raise ValueError("this is a ConfigMap; write the text under its data into a file, and name that file")
    if (version, kind) != (API_VERSION, KIND):
        raise ValueError(
            f"apiVersion {version!r}, kind {kind!r} is not supported; write {API_VERSION}, {KIND} (docs/settings.md)"
        )
    of_profiles = {}
    if "profiles" in fields:
        profiles = _list("profiles", fields.pop("profiles"))
        of_profiles = {"profiles": tuple(_profile(f"profiles[{i}]", profile) for i, profile in enumerate(profiles))}
    return dict(_settings(fields, "", _AT_THE_TOP)) | of_profiles


def _profile(at: str, value: object) -> ProfileConfig:
    """Return what a profile sets; `at` is its place in the file, here and below."""
    fields = _mapping(at, value)
    preferences, requests = fields.pop("preferences", None), fields.pop("capacityRequests", None)
    given = dict(_settings(fields, f"{at}.", _IN_A_PROFILE))
    if "scheduler_name" not in given:
        raise ValueError(f"`{at}` has no schedulerName")
    if preferences is not None:
        given["preferences"] = _preferences(f"{at}.preferences", preferences)
    if requests is not None:
        group = f"{at}.capacityRequests"
        given["capacity_requests"] = CapacityRequests(
            **dict(_settings(_mapping(group, requests), f"{group}.", _IN_REQUESTS))
        )
    return ProfileConfig(**given)


def _preferences(at: str, value: object) -> tuple[str, ...]:
    names = _list(at, value)
    for i, name in enumerate(names):
        if name not in PREFERENCES:
            meant = difflib.get_close_matches(str(name), PREFERENCES, n=1)
            remedy = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(PREFERENCES)}"
            raise ValueError(f"`{at}[{i}]`: there is no preference {name!r}; {remedy}")
        if name in names[:i]:
            raise ValueError(f"`{at}`: duplicate preference {name!r}; list each preference once")
    return tuple(names)


def _settings(fields: Mapping[Any, Any], at: str, paths: _Paths, group: str = "") -> Iterator[tuple[str, Any]]:
    """
    Yield the settings in a mapping, by the names of their fields.

    Args:
        fields: the mapping.
        at: the place of a profile's or of the requests' settings, with a dot after it; empty for the others.
        paths: the settings that can be there, by their paths from there.
        group: the path of the mapping from there, with a dot after it; empty for the mapping there.
    """
    for key, value in fields.items():
        path = f"{group}{key}"
        if path in paths:
            yield paths[path].name, _value(paths[path], f"{at}{path}", value)
        elif any(known.startswith(f"{path}.") for known in paths):
            yield from _settings(_mapping(f"{at}{path}", value), at, paths, f"{path}.")
        else:
            raise ValueError(f"unknown field `{at}{path}`")


def _value(setting: "attrs.Attribute[Any]", at: str, value: object) -> Any:
    if setting.metadata["parse"] is str and not isinstance(value, str):
        raise ValueError(f"`{at}`: {value!r} is not a text")
    try:
        return read_value(setting.metadata["parse"], str(value))
    except ValueError as error:
        raise ValueError(f"`{at}`: {error}") from None


def _mapping(at: str, value: object) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"`{at}` must have fields, and it is {value!r}")  # noqa: TRY004 - about a file
    return dict(value)


def _list(at: str, value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"`{at}` must be a list, and it is {value!r}")  # noqa: TRY004 - about a file
    return value

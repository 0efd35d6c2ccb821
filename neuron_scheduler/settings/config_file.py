"""
Settings from a file: reads what `--config` names, strictly, and names the path of what is wrong.

Our own kind has every setting that `config.py` declares, and several profiles. kube-scheduler's is accepted too
(`staging/src/k8s.io/kube-scheduler/config/v1`), as AWS's my-scheduler has it in its ConfigMap, for its names, Lease,
client and backoff; its other fields are taken out and named. A field that neither knows is refused: a misspelt one that
is silently skipped would be noticed too late. `Config` judges the values.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Final, Literal

import attrs
import msgspec
import yaml
from msgspec import UNSET, UnsetType

from neuron_scheduler.scheduling.plugins.registry import PREFERENCES
from neuron_scheduler.settings.config import OF_A_PROFILE, settings
from neuron_scheduler.settings.profile_config import CapacityRequests, ProfileConfig, path_of
from neuron_scheduler.settings.setting import camel, declared, duration, flag
from neuron_scheduler.telemetry.errors import ConfigurationError

API_VERSION: Final = "neuron-scheduler/v1"
KIND: Final = "NeuronSchedulerConfiguration"
KUBE_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KUBE_KIND: Final = "KubeSchedulerConfiguration"

_WORDS: Final = {"`$.": "`", "Object contains unknown": "unknown", ' in "<unicode string>",': " at"}
_FLAG: Final = re.compile(r"--([a-z][a-z-]*)")


@attrs.frozen
class ConfigFile:
    """
    What a file sets.

    Attributes:
        values: fields of `Config`.
        ignored: paths of fields that have no effect.
    """

    path: str
    values: Mapping[str, Any]
    ignored: tuple[str, ...] = ()

    def in_its_words(self, complaint: str, overridden: frozenset[str]) -> str:
        """Return a complaint of `Config`, with the file's fields in place of the flags that were not given."""
        paths = {flag(name): PATHS[name] for name in self.values if name in PATHS and name not in overridden}
        translated = _FLAG.sub(lambda match: paths.get(match[0], match[0]), complaint)
        return translated if translated == complaint and "--" in complaint else f"{self.path}: {translated}"


def read(path: str) -> ConfigFile:
    """
    Read a configuration file.

    Raises:
        ConfigurationError: it cannot be read, or has an unknown field or a value of the wrong form; names the path.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--config: {path} cannot be read: {error}") from None
    try:
        return _parsed(path, text)
    except (msgspec.MsgspecError, yaml.YAMLError, ValueError) as error:
        raise ConfigurationError(f"{path}: {' '.join(_plain(str(error)).split())}") from None


def _plain(complaint: str) -> str:
    """Return a complaint of msgspec or PyYAML without what only their users understand."""
    for theirs, ours in _WORDS.items():
        complaint = complaint.replace(theirs, ours)
    return complaint


def _parsed(path: str, text: str) -> ConfigFile:
    _require_single_keys(yaml.compose(text, Loader=yaml.CSafeLoader))
    fields = msgspec.yaml.decode(text.encode())
    if not isinstance(fields, dict):
        raise ValueError(f"expected apiVersion: {API_VERSION} and kind: {KIND}, got no fields")  # noqa: TRY004 - about a file
    ignored: tuple[str, ...] = ()
    form = _format(fields.get("apiVersion"), fields.get("kind"))
    if form is KUBE_FORMAT:
        _require_profiles(fields)
        ignored = tuple(_take_out_ignored(fields))
    configuration: Any = msgspec.convert(fields, form, dec_hook=custom)
    settings = dict(values(configuration, PATHS))
    if configuration.profiles is not msgspec.UNSET:
        settings["profiles"] = tuple(profile.config() for profile in configuration.profiles)
    return ConfigFile(path, settings, ignored)


def _format(version: object, kind: object) -> type[msgspec.Struct]:
    """
    Return the struct of a kind of file.

    Raises:
        ValueError: the kind is unknown, or too old.
    """
    if (version, kind) == (API_VERSION, KIND):
        return FORMAT
    if (version, kind) == (KUBE_VERSION, KUBE_KIND):
        return KUBE_FORMAT
    if isinstance(version, str) and version.startswith(f"{KUBE_VERSION}beta"):
        raise ValueError(
            f"apiVersion {version} is no longer supported, not by kube-scheduler either; write {KUBE_VERSION}"
        )
    if kind == "ConfigMap":
        raise ValueError("this is a ConfigMap; write the text under its data into a file, and name that file")
    raise ValueError(
        f"apiVersion {version!r}, kind {kind!r} is not supported; write {API_VERSION}, {KIND}"
        f" or {KUBE_VERSION}, {KUBE_KIND}"
    )


def _require_single_keys(root: yaml.Node | None) -> None:
    """Refuse a duplicate key, of which YAML's reader would silently take the last."""
    todo, done = [root], set[int]()
    while todo:
        node = todo.pop()
        if id(node) in done:
            continue  # an alias, which may even contain itself
        done.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for i, key in enumerate(keys):
                if any(key.value == other.value for other in keys[:i]):
                    raise ValueError(f"line {key.start_mark.line + 1}: duplicate key {key.value}")
            todo.extend(value for _, value in node.value)


PATHS: Final[Mapping[str, str]] = {field.name: path_of(field) for field in settings() if field.name not in OF_A_PROFILE}
"""Where the file has each field of `Config`, except those in `OF_A_PROFILE`, which are in the profiles."""


class Seconds(float):
    """A Go duration in the file."""

    __slots__ = ()


class PreferenceName(str):
    """One of `PREFERENCES` in the file."""

    __slots__ = ()


_REQUESTS: Final = {field.name: path_of(field) for field in declared(CapacityRequests)}
_OF_A_PROFILE: Final = {name: camel(name) for name in OF_A_PROFILE if name != "scheduler_name"}


_TYPES: Final[Mapping[str, Any]] = {
    field.name: Seconds if field.metadata["parse"] is duration else field.type
    for field in (*settings(), *declared(CapacityRequests))
}


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


_CapacityRequests: Final = settings_at(_REQUESTS)


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
            capacity_requests=None if group is None else CapacityRequests(**dict(values(group, _REQUESTS))),
            **dict(values(self, _OF_A_PROFILE)),
        )


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

EFFECTIVE: Final = frozenset(
    {
        "clientConnection.kubeconfig",
        "clientConnection.qps",
        "clientConnection.burst",
        "leaderElection.leaderElect",
        "leaderElection.leaseDuration",
        "leaderElection.renewDeadline",
        "leaderElection.retryPeriod",
        "leaderElection.resourceName",
        "leaderElection.resourceNamespace",
        "podInitialBackoffSeconds",
        "podMaxBackoffSeconds",
    }
)
"""Fields that mean the same here, beside scheduler names and `bindTimeoutSeconds` of VolumeBinding."""

IGNORED: Final = (
    "parallelism",
    "enableProfiling",
    "enableContentionProfiling",
    "percentageOfNodesToScore",
    "extenders",
    "delayCacheUntilActive",
    "leaderElection.resourceLock",
    "clientConnection.contentType",
    "clientConnection.acceptContentTypes",
    "profiles[].percentageOfNodesToScore",
    "profiles[].plugins",
)
"""Fields that have no effect here. Neither has `pluginConfig`, except for VolumeBinding."""


class _VolumeBindingArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    api_version: str = KUBE_VERSION
    kind: Literal["VolumeBindingArgs"] = "VolumeBindingArgs"
    bind_timeout_seconds: Annotated[int, msgspec.Meta(ge=0, le=86400)] = 600


class _VolumeBinding(msgspec.Struct, forbid_unknown_fields=True):
    name: Literal["VolumeBinding"]
    args: _VolumeBindingArgs = msgspec.field(default_factory=_VolumeBindingArgs)


class _KubeProfile(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    scheduler_name: str
    plugin_config: list[_VolumeBinding] = []

    def config(self) -> ProfileConfig:
        """Return what the profile sets."""
        config = ProfileConfig(scheduler_name=self.scheduler_name)
        for plugin in self.plugin_config[:1]:
            config = attrs.evolve(config, volume_bind_timeout=float(plugin.args.bind_timeout_seconds))
        return config


KUBE_FORMAT: Final = format_of(
    {name: path for name, path in PATHS.items() if path in EFFECTIVE}, _KubeProfile, optional=False
)
"""The struct of a file, without the fields that have no effect."""


def _require_profiles(fields: dict[str, Any]) -> None:
    """Refuse a file without profiles: the cluster's own scheduler would bind the same pods."""
    if fields.get("profiles") in (None, []):
        raise ValueError(
            "there are no profiles, so it is not said which pods are for this scheduler (kube-scheduler would take"
            " those of default-scheduler); write profiles: [{schedulerName: my-scheduler}]"
        )


def _take_out_ignored(fields: dict[str, Any]) -> Iterator[str]:
    """
    Remove the fields that have no effect, and yield their paths.

    `resourceLock: leases` is removed silently: a Lease is the lock here too.
    """
    profiles = fields.get("profiles")
    parents: dict[str, list[tuple[str, object]]] = {
        "": [("", fields)],
        "leaderElection": [("leaderElection.", fields.get("leaderElection"))],
        "clientConnection": [("clientConnection.", fields.get("clientConnection"))],
        "profiles[]": [(f"profiles[{i}].", p) for i, p in enumerate(profiles if isinstance(profiles, list) else ())],
    }
    for path in IGNORED:
        parent, _, name = path.rpartition(".")
        for where, group in parents[parent]:
            if isinstance(group, dict) and name in group and (group.pop(name), name) != ("leases", "resourceLock"):
                yield f"{where}{name}"
    for where, profile in parents["profiles[]"]:
        if isinstance(profile, dict):
            yield from (f"{where}pluginConfig{path}" for path in _take_out_plugins(profile))


def _take_out_plugins(profile: dict[str, Any]) -> Iterator[str]:
    """Remove from `pluginConfig` everything except VolumeBinding's timeout, and yield the paths below it."""
    plugins = profile.get("pluginConfig")
    if not isinstance(plugins, list):
        return
    profile["pluginConfig"] = kept = []
    for i, plugin in enumerate(plugins):
        name = plugin.get("name") if isinstance(plugin, dict) else None
        if isinstance(name, str) and name != "VolumeBinding":
            yield f"[{i}] ({name})"
        else:
            kept.append(plugin)
            if isinstance(plugin, dict) and isinstance(plugin.get("args"), dict) and plugin["args"].pop("shape", None):
                yield f"[{i}].args.shape"

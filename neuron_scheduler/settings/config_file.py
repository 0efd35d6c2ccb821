"""
Settings from a file: reads what `--config` names, strictly, and names the path of what is wrong.

Our own kind has every setting, and several profiles; kube-scheduler's is accepted too. Refuses fields that neither of
the two knows: a misspelt field that is silently skipped would be noticed too late. Does not judge the values:
`Config` does.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import yaml

from neuron_scheduler.settings import kube_scheduler_kind
from neuron_scheduler.settings.file_format import FORMAT, PATHS, custom, values
from neuron_scheduler.settings.setting import flag
from neuron_scheduler.telemetry.errors import ConfigurationError

API_VERSION: Final = "neuron-scheduler/v1"
KIND: Final = "NeuronSchedulerConfiguration"

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
    if form is kube_scheduler_kind.FORMAT:
        kube_scheduler_kind.require_profiles(fields)
        ignored = tuple(kube_scheduler_kind.take_out_ignored(fields))
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
    if (version, kind) == (kube_scheduler_kind.API_VERSION, kube_scheduler_kind.KIND):
        return kube_scheduler_kind.FORMAT
    if isinstance(version, str) and version.startswith(f"{kube_scheduler_kind.API_VERSION}beta"):
        raise ValueError(
            f"apiVersion {version} is no longer supported, not by kube-scheduler either;"
            f" write {kube_scheduler_kind.API_VERSION}"
        )
    if kind == "ConfigMap":
        raise ValueError("this is a ConfigMap; write the text under its data into a file, and name that file")
    raise ValueError(
        f"apiVersion {version!r}, kind {kind!r} is not supported; write {API_VERSION}, {KIND}"
        f" or {kube_scheduler_kind.API_VERSION}, {kube_scheduler_kind.KIND}"
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

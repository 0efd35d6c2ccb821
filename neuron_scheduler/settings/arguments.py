"""The settings as flags: kube-scheduler's names, read as Go reads them, over those of a configuration file."""

import argparse
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from neuron_scheduler.settings.config import EXTENDER_ADDRESS, OF_A_PROFILE, Config, settings
from neuron_scheduler.settings.setting import boolean, duration, flag, read_value
from neuron_scheduler.telemetry.errors import ConfigurationError

if TYPE_CHECKING:
    from neuron_scheduler.settings.config_file import ConfigFile

NONE: Final[Mapping[str, Any]] = MappingProxyType({})
KUBE_SCHEDULERS_OWN: Final = frozenset(
    {
        "--authentication-kubeconfig",
        "--authorization-always-allow-paths",
        "--authorization-kubeconfig",
        "--cert-dir",
        "--emulated-version",
        "--feature-gates",
        "--kube-api-content-type",
        "--leader-elect-resource-lock",
        "--profiling",
        "--vmodule",
        "--write-config-to",
    }
)
"""Its flags that mean nothing here."""


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="Read the settings from a YAML file; flags override the file. (default: none)",
        default=argparse.SUPPRESS,
    )
    for field in settings():
        parse = field.metadata["parse"]
        bare: dict[str, Any] = {"nargs": "?", "const": True} if parse is boolean else {}  # true, as in Go
        parser.add_argument(
            *(["-v", "--v"] if field.name == "v" else [flag(field.name)]),
            dest=field.name,
            type=reader(parse),
            metavar=field.metadata["metavar"],
            help=f"{field.metadata['help']} (default: {field.metadata['shown'] or default_text(field.default, parse)})",
            default=argparse.SUPPRESS,
            **bare,
        )


def reader(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the function that argparse calls; argparse prints its error, which says what to write instead."""

    def read(text: str) -> Any:
        try:
            return read_value(parse, text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def default_text(default: object, parse: Callable[[str], Any]) -> str:
    if parse is duration:
        return f"{default:g}s"
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default) or "none"


def settings_from(arguments: argparse.Namespace) -> Config:
    """Return the settings: those of the flags, over those of the file."""
    given = {key: value for key, value in vars(arguments).items() if key not in {"command", "config"}}
    defaults: dict[str, Any] = {}
    if arguments.command == "extender":
        defaults = {"queue": False, "extender_bind_address": EXTENDER_ADDRESS}
    path = getattr(arguments, "config", "")
    return settings_of_file(path, defaults, given) if path else Config(**defaults | given)


def settings_of_file(path: str, defaults: Mapping[str, Any] = NONE, given: Mapping[str, Any] = NONE) -> Config:
    """Return the settings of a file: over these defaults, and below those that are given."""
    from neuron_scheduler.settings import config_file  # imports the plugins, whose names only a file needs

    file = config_file.read(path)
    try:
        return Config(**{**defaults, **_overridden(file, given)})
    except ConfigurationError as error:
        raise ConfigurationError(file.in_its_words(str(error), frozenset(given))) from None


def _overridden(file: "ConfigFile", given: Mapping[str, Any]) -> dict[str, Any]:
    values = {**file.values, **given}
    changes = {name: given[name] for name in OF_A_PROFILE if name in given}
    profiles = file.values.get("profiles", ())
    if "scheduler_name" in changes and len(profiles) > 1:
        raise ConfigurationError(
            f"--scheduler-name names one scheduler, {file.path} has profiles for {len(profiles)}; remove the flag"
        )
    if profiles:
        values["profiles"] = tuple(attrs.evolve(profile, **changes) for profile in profiles)
    return values

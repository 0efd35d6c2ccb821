"""
The command line: turns arguments into a `Config`, and the end of the process into an exit code.

Flags are `Config`'s fields under kube-scheduler's names; `--config` names a file that has the same settings. A mistake
in either is reported in one sentence on stderr. Refuses all other work: `app.py` runs the scheduler,
`sandbox/demo/play.py` the demonstration.
"""

import argparse
import difflib
import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs

from neuron_scheduler import __version__
from neuron_scheduler.errors import ConfigurationError, LeaseLostError, StalledError
from neuron_scheduler.settings import extender_port
from neuron_scheduler.settings.config import OF_A_PROFILE, Config, settings
from neuron_scheduler.settings.setting import boolean, duration, flag
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.line_formats import sentence
from neuron_scheduler.telemetry.stderr import unblocked_stderr

if TYPE_CHECKING:
    from neuron_scheduler.settings.config_file import ConfigFile

PROGRAM: Final = "neuron-scheduler"
CLEAN, FAILED, MISCONFIGURED = 0, 1, 2

EPILOG: Final = (
    "Exit codes: 0: asked to stop; 1: lost the Lease, was the leader and did not schedule, or crashed;"
    " 2: the configuration cannot work."
)

_KUBE_SCHEDULERS_OWN: Final = frozenset(
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

log = logs.logger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments (default: the process's own) name, and return the exit code."""
    with unblocked_stderr():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    try:
        arguments = _parse(sys.argv[1:] if argv is None else argv)
        if arguments.command == "demo":
            from neuron_scheduler.sandbox.demo import play

            return int(play.run(arguments))
        if arguments.command == "check":
            from neuron_scheduler.check import command

            return command.run(arguments)
        if arguments.command == "usage-maps":
            from neuron_scheduler import usage_maps

            return usage_maps.run(arguments.kubeconfig, arguments.master)
        config, file = _with_file(arguments)
        logs.configure(verbosity=config.v, logging_format=config.logging_format)
        if file is not None and file.ignored:
            log.warning(
                "Fields of the configuration file have no effect here", config=file.path, fields=list(file.ignored)
            )
    except ConfigurationError as error:
        return _refuse(error)
    return _run(config)


def _run(config: Config) -> int:
    gc.disable()  # imports leave little garbage, and collecting it takes a sixth of their time
    from neuron_scheduler import app  # not needed for --help and --version; the import takes 0.5 s

    gc.freeze()
    gc.enable()

    code = CLEAN
    try:
        anyio.run(app.run, config, backend="asyncio", backend_options={"use_uvloop": True})
    except* ConfigurationError as group:
        code = _refuse(group)
    except* LeaseLostError as group:
        code = _stop("Leaderelection lost", group)
    except* StalledError as group:
        code = _stop("The scheduler does not schedule; exiting", group)
    except* Exception as group:  # noqa: BLE001 - the process ends here, with a log line
        code = _crash(group)
    if code == CLEAN:
        log.info("Requested to terminate, exiting")
    return code


def _refuse(error: BaseException) -> int:
    print(f"{PROGRAM}: {sentence(error)}", file=sys.stderr)  # noqa: T201 - for a person, before or instead of logs
    return MISCONFIGURED


def _stop(reason: str, error: BaseException) -> int:
    log.error(reason, exc=error)
    return FAILED


def _crash(error: BaseException) -> int:
    log.fatal("The scheduler ended unexpectedly", exc=error)
    return FAILED


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """
    Read the arguments; `--help` and `--version` print and exit.

    Raises:
        ConfigurationError: an argument is unknown, lacks its value, or cannot be read.
    """
    parser, commands = _parsers()
    if "demo" in argv[:1]:
        from neuron_scheduler.sandbox.demo.play import add_arguments  # the scheduler itself does not import the sandbox

        add_arguments(commands["demo"])
    if "check" in argv[:1]:
        from neuron_scheduler.check.command import add_arguments as add_flags_of_check

        add_flags_of_check(commands["check"])
    try:
        arguments, unknown = parser.parse_known_args(argv)
    except argparse.ArgumentError as error:
        raise ConfigurationError(str(error).removeprefix("argument ")) from None
    if unknown:
        raise ConfigurationError(_unknown(unknown[0], commands.get(arguments.command, parser)))
    if arguments.command is None:
        raise ConfigurationError(
            "say what to do: 'run' the scheduler, 'extender' beside kube-scheduler, 'check' a cluster, or 'demo';"
            " see --help"
        )
    return arguments


def _parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="A topology-aware Kubernetes scheduler for AWS Inferentia and Trainium devices.",
        epilog=EPILOG,
        allow_abbrev=False,
        exit_on_error=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="schedule the pods of a cluster",
        description="Schedule the pods of a cluster. Durations are written as in Go: 15s, 1m30s, 500ms.",
        epilog=EPILOG,
        allow_abbrev=False,
        exit_on_error=False,
    )
    _add_settings(run)
    extender = commands.add_parser(
        "extender",
        help="extend kube-scheduler, without a queue of its own",
        description="Serve kube-scheduler's HTTP extender protocol, and schedule no pods otherwise."
        " The settings are those of 'run'; --scheduler-name has no effect.",
        epilog=EPILOG,
        allow_abbrev=False,
        exit_on_error=False,
    )
    _add_settings(extender)
    demo = commands.add_parser(
        "demo",
        help="run the scheduler on a simulated fleet, without a cluster",
        allow_abbrev=False,
        exit_on_error=False,
    )
    check = commands.add_parser(
        "check",
        help="say what needs action in a cluster, before or after the installation",
        allow_abbrev=False,
        exit_on_error=False,
    )
    ours = {"run": run, "extender": extender, "check": check, "demo": demo}
    return parser, ours | {"usage-maps": _usage_maps_parser(commands)}


def _usage_maps_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "usage-maps",
        help="print what AWS's scheduler extension has to know before it takes over",
        description=(
            "Print a kubectl command for each node whose annotations NEURON_DEV_USAGE_MAP and NEURON_CORE_USAGE_MAP"
            " differ from what its pods hold. Changes nothing; needs the right to list nodes and pods."
        ),
        allow_abbrev=False,
        exit_on_error=False,
    )
    for field in settings():
        if field.name in {"kubeconfig", "master"}:
            about = field.metadata
            parser.add_argument(flag(field.name), metavar=about["metavar"], help=about["help"], default=field.default)
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
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
            type=_reader(parse),
            metavar=field.metadata["metavar"],
            help=f"{field.metadata['help']} (default: {field.metadata['shown'] or _shown(field.default, parse)})",
            default=argparse.SUPPRESS,
            **bare,
        )


def _reader(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the function that argparse calls; argparse prints its error, which says what to write instead."""

    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            message = f"{text!r} is not a number" if parse in {int, float} else str(error)
            raise argparse.ArgumentTypeError(message) from None

    return read


def _shown(default: object, parse: Callable[[str], Any]) -> str:
    if parse is duration:
        return f"{default:g}s"
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default) or "none"


def _with_file(arguments: argparse.Namespace) -> "tuple[Config, ConfigFile | None]":
    """Return the settings, and the file that they were read from, if any."""
    given = {key: value for key, value in vars(arguments).items() if key not in {"command", "config"}}
    defaults: dict[str, Any] = {}
    if arguments.command == "extender":
        defaults = {"queue": False, "extender_bind_address": extender_port.DEFAULT}
    path = getattr(arguments, "config", "")
    if not path:
        return _checked(defaults | given), None
    from neuron_scheduler.settings import config_file  # imports the plugins, whose names only a file needs

    file = config_file.read(path)
    try:
        return _checked(defaults | _overridden(file, given)), file
    except ConfigurationError as error:
        raise ConfigurationError(file.in_its_words(str(error), frozenset(given))) from None


def _checked(values: Mapping[str, Any]) -> Config:
    config = Config(**values)
    config.check_files()
    return config


def _overridden(file: "ConfigFile", given: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the file's values, overridden by the flags.

    Raises:
        ConfigurationError: a flag names one scheduler where the file lists several.
    """
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


def _unknown(argument: str, parser: argparse.ArgumentParser) -> str:
    """Return the error for an unknown argument, with the flag that was probably meant."""
    name = argument.partition("=")[0]
    if not name.startswith("-"):
        return f"unexpected argument {argument!r}; every setting is a --flag"
    if name in _KUBE_SCHEDULERS_OWN:
        return f"{name} is a flag of kube-scheduler that has no effect here; remove it"
    known = [option for action in parser._actions for option in action.option_strings]  # noqa: SLF001 - no public list
    meant = difflib.get_close_matches(name, known, n=1)
    return f"unknown flag {name}" + (f"; did you mean {meant[0]}?" if meant else f"; see {parser.prog} --help")

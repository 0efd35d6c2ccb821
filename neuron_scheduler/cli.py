"""
The command line: finds the command that the arguments name, and turns its end into an exit code.

The same commands about a cluster are those of the plugin `kubectl neuron`. A mistake is reported in one sentence on
stderr. The module of a command is imported when the command is named: `--help` and a question of a few milliseconds do
not wait for the imports of all others.
"""

import argparse
import difflib
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final

import attrs

from neuron_scheduler import __version__
from neuron_scheduler.telemetry.errors import ConfigurationError, NeuronSchedulerError
from neuron_scheduler.telemetry.line_formats import printable, sentence
from neuron_scheduler.telemetry.stderr import unblocked_stderr

PROGRAM: Final = "neuron-scheduler"
PLUGIN: Final = "kubectl neuron"
MISCONFIGURED: Final = 2

_ABOUT: Final = (
    "A topology-aware Kubernetes scheduler for AWS Inferentia and Trainium devices.",
    "Why pods with AWS Inferentia or Trainium devices wait, what would fit, and who holds the devices.",
)
_RUN: Final = "neuron_scheduler.commands.run"


@attrs.frozen
class Command:
    """
    A command.

    Attributes:
        help: the line about it in the list of commands.
        module: the dotted name of its module, which has `add_arguments(parser)` and `run(arguments)`.
        description: the first text of its own help, where its module serves several commands.
        asks: it asks about a cluster, so it is a command of `kubectl neuron` too.
    """

    name: str
    help: str
    module: str
    description: str | None = None
    asks: bool = False

    def load(self) -> ModuleType:
        return importlib.import_module(self.module)

    def run(self, arguments: argparse.Namespace) -> int:
        code: int = self.load().run(arguments)
        return code


COMMANDS: Final = (
    Command(
        "run",
        "schedule the pods of a cluster",
        _RUN,
        "Schedule the pods of a cluster. Durations are written as in Go: 15s, 1m30s, 500ms.",
    ),
    Command(
        "extender",
        "extend kube-scheduler, without a queue of its own",
        _RUN,
        "Serve kube-scheduler's HTTP extender protocol, and schedule no pods otherwise."
        " The settings are those of 'run'; --scheduler-name has no effect.",
    ),
    Command("why", "say why a pod waits, and what would let it in", "neuron_scheduler.commands.why", asks=True),
    Command("fit", "say how many more pods fit, and where they go", "neuron_scheduler.commands.fit", asks=True),
    Command(
        "map", "show the Neuron devices of all nodes, and who holds them", "neuron_scheduler.commands.map", asks=True
    ),
    Command(
        "check",
        "say what needs action in a cluster, before or after the installation",
        "neuron_scheduler.commands.check.command",
        asks=True,
    ),
    Command(
        "usage-maps",
        "print the commands that prepare AWS's scheduler extension to take over",
        "neuron_scheduler.commands.usage_maps",
        asks=True,
    ),
)


def main(argv: Sequence[str] | None = None, *, program: str = PROGRAM) -> int:
    argv = sys.argv[1:] if argv is None else argv
    with unblocked_stderr():
        try:
            arguments = parse(argv, program)
            return commands_of(program)[arguments.command].run(arguments)
        except NeuronSchedulerError as error:
            print(f"{program}: {printable(sentence(error))}", file=sys.stderr)  # noqa: T201 - for a person, not a log
            return MISCONFIGURED


def commands_of(program: str) -> dict[str, Command]:
    """Return the commands of a program by name: the plugin has those that ask about a cluster."""
    return {command.name: command for command in COMMANDS if command.asks or program != PLUGIN}


def parse(argv: Sequence[str], program: str = PROGRAM) -> argparse.Namespace:
    """Read the arguments; `--help` and `--version` print and exit."""
    for word in argv:
        if not word.isascii() and any("\ud800" <= character <= "\udfff" for character in word):
            raise ConfigurationError(f"the argument {word!r} is not UTF-8")  # Python keeps such bytes as surrogates
    parser, commands = parsers(program, argv[:1])
    try:
        arguments, unknown = parser.parse_known_args(argv)
    except argparse.ArgumentError as error:
        raise ConfigurationError(str(error).removeprefix("argument ")) from None
    if unknown:
        raise ConfigurationError(_unknown(unknown[0], commands.get(arguments.command, parser)))
    if arguments.command is None:
        raise ConfigurationError(f"say what to do: {', '.join(commands)}; see {program} --help")
    return arguments


def parsers(
    program: str = PROGRAM, named: Sequence[str] | None = None
) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser of a program and those of its commands; only the named ones (default: all) know their flags."""
    parser = argparse.ArgumentParser(
        prog=program, description=_ABOUT[program == PLUGIN], allow_abbrev=False, exit_on_error=False
    )
    parser.add_argument("--version", action="version", version=f"{program} {__version__}")
    listed = parser.add_subparsers(dest="command", metavar="COMMAND")
    by_name = {}
    for command in commands_of(program).values():
        by_name[command.name] = listed.add_parser(
            command.name, help=command.help, description=command.description, allow_abbrev=False, exit_on_error=False
        )
        if named is None or command.name in named:
            command.load().add_arguments(by_name[command.name])
    return parser, by_name


def _unknown(argument: str, parser: argparse.ArgumentParser) -> str:
    name = argument.partition("=")[0]
    if not name.startswith("-"):
        return f"unexpected argument {argument!r}; see {parser.prog} --help"
    if name in importlib.import_module("neuron_scheduler.settings.arguments").KUBE_SCHEDULERS_OWN:
        return f"{name} is a flag of kube-scheduler that has no effect here; remove it"
    known = [option for action in parser._actions for option in action.option_strings]  # noqa: SLF001 - no public list
    meant = difflib.get_close_matches(name, known, n=1)
    return f"unknown flag {name}" + (f"; did you mean {meant[0]}?" if meant else f"; see {parser.prog} --help")

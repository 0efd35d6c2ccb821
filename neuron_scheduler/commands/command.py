"""
One command of the program: its name, what it is for, and the module that knows its arguments and runs it.

The module is imported when the command is named, so that `--help` and a question of a few milliseconds do not wait for
the imports of all others. Does not depend on which commands there are: that is for `cli`.
"""

import argparse
import importlib
from typing import Protocol, cast

import attrs


class CommandModule(Protocol):
    """What the module of a command has."""

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None:
        """Declare the arguments, and the description where the command has none."""

    def run(self, arguments: argparse.Namespace, /) -> int:
        """Do what the arguments say, and return the exit code."""


@attrs.frozen
class Command:
    """
    A command.

    Attributes:
        help: the line about it in the list of commands.
        module: the dotted name of its module, a `CommandModule`.
        description: the first text of its own help, where its module serves several commands.
        asks: it asks about a cluster, so it is a command of `kubectl neuron` too.
    """

    name: str
    help: str
    module: str
    description: str | None = None
    asks: bool = False

    def loaded(self) -> CommandModule:
        """Import the module."""
        return cast("CommandModule", importlib.import_module(self.module))

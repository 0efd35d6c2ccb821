"""
`neuron-scheduler replay`: make the decisions of a journal again, also with another profile.

The exit code is an answer, too, as with `diff`: 1 means that decisions differ. Does not connect to a cluster.
"""

import argparse

from neuron_scheduler.commands import output
from neuron_scheduler.commands.arguments import add_output
from neuron_scheduler.commands.reading import answering, configured_profiles
from neuron_scheduler.commands.replay_text import lines
from neuron_scheduler.explain.answers.replay_report import ReplayReport
from neuron_scheduler.telemetry.paragraphs import Paragraphs
from neuron_scheduler.telemetry.terminal import terminal

SAME, DIFFERENT = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Make the decisions of a journal (--decision-journal of the command run) again, and say which ones differ and"
        " why. With --config also play the recorded pods through with that profile and with the recorded one, and say"
        " how many would have waited."
    )
    parser.epilog = "Exit codes: 0: no decision differs; 1: some do; 2: the journal cannot be read."
    parser.add_argument("files", metavar="FILE", nargs="+", help="a file of the journal; the order does not matter")
    parser.add_argument("--config", metavar="FILE", default="", help="decide with the profiles of this configuration")
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """
    Replay, print what came of it, and return the exit code.

    Raises:
        NeuronSchedulerError: the journal or the configuration cannot be read.
    """
    from neuron_scheduler.journal.reading import records_in
    from neuron_scheduler.journal.report import report

    with answering():
        other = configured_profiles(arguments.config) if arguments.config else None
        answer = report(lambda: records_in(arguments.files), other)
        _print(answer, arguments.output)
    return DIFFERENT if answer.different else SAME


def _print(answer: ReplayReport, form: str) -> None:
    if form in output.DOCUMENTS:
        output.write_document(answer, form)
        return
    screen = terminal()
    output.write_lines(lines(answer, Paragraphs(screen.width, screen.colour), every=form == "wide"))

"""
`neuron-scheduler map`: the devices of all nodes, who holds them, and what is withheld; once, or as long as one looks.

Does not count anything: the figures are those of `explain.fleet`, as in the metrics.
"""

import argparse
from typing import Final

import attrs

from neuron_scheduler.commands import output
from neuron_scheduler.commands.arguments import FORMS, add_cluster, add_namespace, add_output
from neuron_scheduler.commands.map_text import BY, PATH, lines_of, picture
from neuron_scheduler.commands.reading import answering, read
from neuron_scheduler.explain.answers import Fleet
from neuron_scheduler.settings.arguments import reader
from neuron_scheduler.settings.setting import duration
from neuron_scheduler.telemetry.errors import ConfigurationError
from neuron_scheduler.telemetry.terminal import terminal

SHOWN: Final = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Show the Neuron devices of all nodes: used, free in which blocks, withheld and why; the worst nodes first."
        " Changes nothing; needs the right to list nodes and pods, or --from, or --ask."
    )
    add = parser.add_argument
    add("node", metavar="NODE", nargs="?", default="", help="show this node only")
    add("--by", choices=BY, default=BY[0], help=f"group the nodes by {', '.join(BY)} (default: {BY[0]})")
    add("-w", "--watch", action="store_true", help="draw it again when it has changed, until Ctrl-C")
    add(
        "--interval",
        metavar="DURATION",
        type=reader(duration),
        default=1.0,
        help="with --watch: draw at most once in this time (default: 1s)",
    )
    add_namespace(parser)
    add_output(parser, *FORMS)
    add_cluster(parser)


def run(arguments: argparse.Namespace) -> int:
    """
    Print the map, once or until it is stopped, and return the exit code.

    Raises:
        NeuronSchedulerError: there is no map.
    """
    if arguments.watch:
        if arguments.files or arguments.output in output.DOCUMENTS:
            raise ConfigurationError("--watch draws a cluster that changes; leave out --from and -o json or yaml")
        if arguments.interval <= 0:
            raise ConfigurationError("--interval must be longer than 0s")
        from neuron_scheduler.commands.map_watch import watch

        return watch(arguments)
    with answering():
        fleet = _asked(arguments) if arguments.ask else _computed(arguments)
        if arguments.output in output.DOCUMENTS:
            output.write_document(_only(fleet, arguments.node), arguments.output)
        else:
            output.write_lines(lines_of(_only(fleet, arguments.node), arguments, terminal()))
    return SHOWN


def _computed(arguments: argparse.Namespace) -> Fleet:
    reading = read(arguments)
    fleet = picture(reading.capture.cluster)
    return attrs.evolve(fleet, notes=(*fleet.notes, *reading.capture.notes))


def _asked(arguments: argparse.Namespace) -> Fleet:
    """Return the running scheduler's answer."""
    from neuron_scheduler.commands.ask import ask, understood

    return understood(ask(arguments, PATH, {}).value, Fleet)


def _only(fleet: Fleet, name: str) -> Fleet:
    """
    Return the fleet with one machine only; all of it without a name.

    Raises:
        ConfigurationError: no machine has this name.
    """
    machines = tuple(machine for machine in fleet.machines if not name or machine.node_name == name)
    if name and not machines:
        raise ConfigurationError(f"there is no node {name} with Neuron")
    return attrs.evolve(fleet, machines=machines)

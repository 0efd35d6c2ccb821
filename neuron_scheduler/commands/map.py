"""`neuron-scheduler map`: the devices of all nodes, who holds them, and what is withheld."""

import argparse
from typing import Final

import attrs

from neuron_scheduler.commands import output
from neuron_scheduler.commands.arguments import FORMS, add_cluster, add_namespace, add_output
from neuron_scheduler.commands.map_text import BY, MapText
from neuron_scheduler.commands.reading import Answered, Reading, compute, one_question
from neuron_scheduler.explain.answers import Fleet
from neuron_scheduler.explain.fleet import fleet
from neuron_scheduler.steps import run as finished
from neuron_scheduler.telemetry.errors import ConfigurationError
from neuron_scheduler.telemetry.terminal import terminal

SHOWN: Final = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show the Neuron devices of all nodes: used, free in which blocks, withheld and why; largest free blocks first."
        " Changes nothing; needs the right to list nodes and pods, or --from, or --ask."
    )
    add = parser.add_argument
    add("node", metavar="NODE", nargs="?", default="", help="show this node only")
    add("--by", choices=BY, default=BY[0], help=f"group the nodes by {', '.join(BY)} (default: {BY[0]})")
    add_namespace(parser)
    add_output(parser, *FORMS)
    add_cluster(parser)


def run(arguments: argparse.Namespace) -> int:
    with one_question():
        answered = _ask(arguments) if arguments.ask else compute(arguments, _fleet)
        shown = _only(answered.answer, arguments.node)
        text = MapText(terminal(), arguments.by, every_machine=arguments.output == "wide")
        lines = text.node_lines(shown.machines[0]) if arguments.node else text.lines(shown)
        output.write(shown, arguments.output, lines)
    return SHOWN


def _fleet(reading: Reading) -> Fleet:
    return finished(fleet(reading.capture.cluster))


def _ask(arguments: argparse.Namespace) -> Answered[Fleet]:
    from neuron_scheduler.commands.ask import ask

    return ask(arguments, "/v1/fleet", {"namespace": arguments.namespace}, Fleet)


def _only(fleet: Fleet, name: str) -> Fleet:
    machines = tuple(machine for machine in fleet.machines if not name or machine.node_name == name)
    if name and not machines and fleet.leaves_out:
        raise ConfigurationError(f"node {name} is not among the {len(fleet.machines)} that are pictured; omit --ask")
    if name and not machines:
        raise ConfigurationError(f"there is no node {name} with Neuron")
    return attrs.evolve(fleet, machines=machines)

"""
The fleet of a cluster, and its lines on a screen: for the map that is printed once, and for the one that is watched.

Does not read a cluster.
"""

import argparse
from typing import Final

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.commands.map_text import MapText
from neuron_scheduler.commands.reading import configuration
from neuron_scheduler.explain.answers.fleet import Fleet
from neuron_scheduler.explain.fleet import fleet
from neuron_scheduler.explain.steps import finished
from neuron_scheduler.profiles import count_unknown_only
from neuron_scheduler.telemetry.terminal import Terminal

PATH: Final = "/v1/fleet"
"""Of the question to the running scheduler."""


def picture(cluster: Cluster, arguments: argparse.Namespace) -> Fleet:
    """Return the fleet of a cluster."""
    trusting = count_unknown_only(configuration(arguments.config))
    return finished(fleet(cluster, count_unknown_only=trusting))


def lines_of(fleet: Fleet, arguments: argparse.Namespace, screen: Terminal, *, whole: bool = True) -> list[str]:
    """Return the map as lines; if it must not be longer than the screen, as much of it as has room."""
    text = MapText(screen.width, screen.colour, arguments.by, every_machine=arguments.output == "wide")
    if arguments.node:
        return list(text.node_lines(fleet, arguments.node))
    return list(text.lines(fleet)) if whole else text.frame(fleet, screen.height - 1)

"""
`neuron-scheduler fit`: how many more pods of a size, or replicas of a workload, fit; and what new nodes would give.

The exit code is an answer, too: 1 means that not all fit. Refuses to compute a figure: `explain` does.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec

from neuron_scheduler.commands import output
from neuron_scheduler.commands.arguments import FORMS, add_cluster, add_namespace, add_output
from neuron_scheduler.commands.fit_text import FitText
from neuron_scheduler.commands.reading import Reading, answering, read
from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.explain.answers.fit import Fit, Fits
from neuron_scheduler.explain.replicated import Replicated
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.settings.arguments import reader
from neuron_scheduler.telemetry.paragraphs import Paragraphs
from neuron_scheduler.telemetry.terminal import terminal
from neuron_scheduler.workload_files.documents import documents
from neuron_scheduler.workload_files.sizes import purchases, sized
from neuron_scheduler.workload_files.workloads import read_workloads

ALL_FIT, NOT_ALL = 0, 1
MOST_BYTES: Final = 16 << 20
"""Of a file with workloads."""
EPILOG: Final = "Exit codes: 0: all fit (without a number: at least one); 1: not all fit; 2: there is no answer."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Say how many more pods of a size fit, or how many replicas of a workload; where they go, what limits the rest,"
        " and what new nodes would give. Changes nothing; needs the right to list nodes and pods, or --from, or --ask."
    )
    parser.epilog = EPILOG
    add = parser.add_argument
    add("-f", "--filename", metavar="FILE", default="", help="a Pod, Job, JobSet, LeaderWorkerSet, Deployment, ...")
    add("--devices", metavar="N", type=reader(int), default=0, help="Neuron devices of a pod")
    add("--cores", metavar="N", type=reader(int), default=0, help="NeuronCores of a pod")
    add("--cpu", metavar="QUANTITY", default="", help="of a pod, such as 16")
    add("--memory", metavar="QUANTITY", default="", help="of a pod, such as 64Gi")
    add("--instance-type", metavar="TYPE", default="", help="the pods go to nodes of this type only")
    add("--scheduler-name", metavar="NAME", default="", help="of the pods (default: that of the configuration)")
    add("--replicas", metavar="N", type=reader(int), default=None, help="wanted (default: those of the file, or any)")
    add(
        "--buy",
        metavar="NxTYPE",
        default="",
        help="say what new nodes would give, such as 2xtrn1.32xlarge,1xtrn2.48xlarge",
    )
    add_namespace(parser)
    add_output(parser, *FORMS)
    add_cluster(parser)


def run(arguments: argparse.Namespace) -> int:
    """
    Answer, print the answer, and return the exit code.

    Raises:
        NeuronSchedulerError: there is no answer.
    """
    if arguments.filename and (sizes := [name for name in _SIZES if getattr(arguments, name)]):
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in sizes)
        raise ConfigurationError(f"--filename says what a pod asks for; leave out {flags}")
    with answering():
        fits = _asked(arguments) if arguments.ask else _computed(arguments)
        if arguments.output in output.DOCUMENTS:
            output.write_document(fits, arguments.output)
        else:
            output.write_lines(_text(fits, wide=arguments.output == "wide"))
    return ALL_FIT if all(fit.fitting >= max(fit.asked, 1) for fit in fits.workloads) else NOT_ALL


_SIZES: Final = ("devices", "cores", "cpu", "memory", "instance_type", "scheduler_name")


def _computed(arguments: argparse.Namespace) -> Fits:
    """Return the answer from a cluster that was read for it."""
    from neuron_scheduler.explain.fit import how_many_of_each
    from neuron_scheduler.explain.why import finished

    bought = purchases(arguments.buy)
    text = _file(arguments.filename) if arguments.filename else b""
    reading = read(arguments)
    workloads = _workloads(arguments, reading, text)

    def profile_of(workload: Replicated) -> Profile:
        return reading.profile_for(workload.pod_sets[0].template)

    fits = finished(how_many_of_each(reading.capture.cluster, workloads, profile_of, buy=bought))
    return attrs.evolve(fits, notes=(*fits.notes, *reading.capture.notes))


def _workloads(arguments: argparse.Namespace, reading: Reading, text: bytes) -> tuple[Replicated, ...]:
    if arguments.filename:
        return read_workloads(arguments.filename, text, namespace=reading.namespace, replicas=arguments.replicas)
    return (
        sized(
            **{name: getattr(arguments, name) for name in _SIZES if name != "scheduler_name"},
            replicas=arguments.replicas or 0,
            namespace=reading.namespace,
            scheduler_name=arguments.scheduler_name or next(iter(reading.profiles)),
        ),
    )


def _file(path: str) -> bytes:
    try:
        with sys.stdin.buffer if path == "-" else Path(path).open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(text) > MOST_BYTES:
        raise ConfigurationError(f"{path} has more than {MOST_BYTES >> 20} MiB; it should have workloads")
    return text


def _asked(arguments: argparse.Namespace) -> Fits:
    """Return the running scheduler's answer about one workload, or about a size."""
    from neuron_scheduler.commands.ask import ask, understood

    params = {"buy": ",".join(f"{nodes}:{kind}" for nodes, kind in purchases(arguments.buy))}
    params |= {} if arguments.replicas is None else {"replicas": str(arguments.replicas)}
    body = None
    if arguments.filename:
        (document, *more) = documents(arguments.filename, _file(arguments.filename))
        if more:
            raise ConfigurationError(f"{arguments.filename} has {len(more) + 1} documents; --ask takes one workload")
        body = msgspec.json.encode(document)
        params |= {"namespace": arguments.namespace}
    else:
        named = {"instance_type": "instanceType", "scheduler_name": "schedulerName"}
        sizes: dict[str, Any] = {named.get(name, name): getattr(arguments, name) for name in _SIZES}
        params |= {name: str(size) for name, size in sizes.items() if size}
        params |= {"namespace": arguments.namespace} if arguments.namespace else {}
    given = {name: value for name, value in params.items() if value or name == "namespace"}
    return Fits((understood(ask(arguments, "/v1/fit", given, body), Fit),))


def _text(fits: Fits, *, wide: bool) -> Iterator[str]:
    screen = terminal()
    text = FitText(Paragraphs(screen.width, screen.colour), every_node=wide)
    for number, fit in enumerate(fits.workloads):
        if number:
            yield ""
        yield from text.lines(fit)
    for note in fits.notes:
        yield from text.paragraphs.wrapped(f"Note: {note}", rest="  ")

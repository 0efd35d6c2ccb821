"""
`neuron-scheduler fit`: how many more pods fit, where they go, what limits the rest, and what new nodes would give.

The exit code is an answer, too: 1 means that not all fit. Does not compute a figure: `explain` does.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import msgspec

from neuron_scheduler.capture.documents import MOST_BYTES
from neuron_scheduler.capture.sizes import count, counts, purchases, sized
from neuron_scheduler.capture.workloads import only_workload, read_workloads
from neuron_scheduler.commands import output
from neuron_scheduler.commands.arguments import FORMS, add_cluster, add_namespace, add_output
from neuron_scheduler.commands.fit_text import FitText
from neuron_scheduler.commands.reading import Reading, answering, read
from neuron_scheduler.explain.answers import Fit, Fits
from neuron_scheduler.explain.fit import Replicated
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import counted
from neuron_scheduler.settings.arguments import reader
from neuron_scheduler.telemetry.errors import ConfigurationError
from neuron_scheduler.telemetry.terminal import terminal

ALL_FIT, SOME_DO_NOT = 0, 1
STDIN: Final = "-"
_SIZES: Final = ("devices", "cores", "cpu", "memory", "instance_type", "scheduler_name")
EPILOG: Final = (
    "Exit codes: 0: all replicas that were asked for fit (without a number: at least one does); 1: they do not;"
    " 2: there is no answer."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Say how many more pods fit now, where the next ones go, what limits the rest, and what new nodes would give."
        " Changes nothing; needs the right to list nodes and pods, or --from, or --ask."
    )
    parser.epilog = EPILOG
    add = parser.add_argument_group("the pods").add_argument
    add(
        "-f",
        "--filename",
        metavar="FILE",
        default="",
        help="a file with a Pod, Job, CronJob, JobSet, LeaderWorkerSet, Deployment, ReplicaSet or StatefulSet, as YAML"
        " or JSON; - is standard input",
    )
    add("--devices", metavar="N", type=reader(counts), default=(), help="Neuron devices of a pod; 4,4: two containers")
    add("--cores", metavar="N", type=reader(counts), default=(), help="Neuron cores of a pod, likewise")
    add("--cpu", metavar="QUANTITY", default="", help="cpu of a pod, such as 16 or 500m")
    add("--memory", metavar="QUANTITY", default="", help="memory of a pod, such as 64Gi")
    add("--instance-type", metavar="TYPE", default="", help="only on nodes of this type")
    add("--scheduler-name", metavar="NAME", default="", help="who places them (default: that of the configuration)")
    add(
        "--replicas",
        metavar="N",
        type=reader(count),
        help="how many are wanted (default: what the file says; without a file, as many as fit)",
    )
    add(
        "--buy",
        metavar="NxTYPE",
        action="append",
        default=[],
        help="say what N new nodes of a type would give, such as 2xtrn1.32xlarge; may be repeated",
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
    _check(arguments)
    with answering():
        answer = _asked(arguments) if arguments.ask else _computed(arguments)
        if arguments.output in output.DOCUMENTS:
            output.write_document(answer, arguments.output)
        else:
            output.write_lines(_text(answer, wide=arguments.output == "wide"))
    fit = all(each.fitting >= max(each.asked, 1) for each in answer.workloads)
    return ALL_FIT if fit else SOME_DO_NOT


def _check(arguments: argparse.Namespace) -> None:
    size = [name for name in _SIZES if getattr(arguments, name)]
    if arguments.filename and size:
        raise ConfigurationError(f"--{size[0].replace('_', '-')} is in the file of -f already; leave one of them out")
    if not (arguments.filename or size):
        raise ConfigurationError("say what is to fit: -f FILE, or a size such as --devices 8 --replicas 4")
    if arguments.filename == STDIN and STDIN in arguments.files:
        raise ConfigurationError("-f and --from cannot both read standard input")


def _computed(arguments: argparse.Namespace) -> Fits:
    """Return the answer from a cluster that was read for it."""
    from neuron_scheduler.explain.fit import how_many_of_each
    from neuron_scheduler.steps import run

    text, buy = _content(arguments.filename), purchases(",".join(arguments.buy))
    _workloads(arguments, text, "default", "")  # a mistake is found before the cluster is read
    reading = read(arguments)
    workloads = _workloads(arguments, text, reading.namespace, next(iter(reading.profiles)))
    steps = how_many_of_each(
        reading.capture.cluster,
        workloads,
        lambda workload: reading.profile_for(workload.pod_sets[0].template),
        buy=buy,
    )
    return attrs.evolve(run(steps), notes=(*_notes(workloads, reading), *reading.capture.notes))


def _workloads(
    arguments: argparse.Namespace, text: bytes, namespace: str, scheduler_name: str
) -> tuple[Replicated, ...]:
    """Return what the file or the size describes, for pods of a namespace and a scheduler unless the file says more."""
    if arguments.filename:
        return read_workloads(arguments.filename, text, namespace=namespace, replicas=arguments.replicas)
    return (_sized(arguments, namespace, scheduler_name),)


def _sized(arguments: argparse.Namespace, namespace: str, scheduler_name: str) -> Replicated:
    return sized(
        devices=arguments.devices,
        cores=arguments.cores,
        cpu=arguments.cpu,
        memory=arguments.memory,
        instance_type=arguments.instance_type,
        replicas=arguments.replicas or 0,
        namespace=namespace,
        scheduler_name=arguments.scheduler_name or scheduler_name,
    )


def _content(path: str) -> bytes:
    """
    Return the content of a file; of one that is too long, one byte too much.

    Raises:
        ConfigurationError: it cannot be read.
    """
    if not path:
        return b""
    try:
        if path == STDIN:
            return sys.stdin.buffer.read(MOST_BYTES + 1)
        with Path(path).open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error


def _notes(workloads: tuple[Replicated, ...], reading: Reading) -> Iterator[str]:
    others = {pods.template.scheduler_name for workload in workloads for pods in workload.pod_sets}
    for name in sorted(others - reading.profiles.keys()):
        ours = next(iter(reading.profiles))
        yield f"The schedulerName is {name}: another scheduler places these pods; this is what {ours} would do."
    for workload in workloads:
        there = sum(
            any(_belongs(pod, pods.template) for pods in workload.pod_sets) for pod in reading.capture.pods.values()
        )
        if there:
            verb = "are" if there > 1 else "is"
            yield f"{counted(there, 'pod')} of {workload.name} {verb} there already; the answer is about more of them."
    waiting = sum(pod.neuron is not None for pod in reading.capture.waiting)
    if waiting:
        verb = "wait" if waiting > 1 else "waits"
        yield f"{counted(waiting, 'pod')} with Neuron {verb} already, and may get the space first."


def _belongs(pod: Pod, template: Pod) -> bool:
    """Return whether a pod of the cluster has the owner that a template's pods would have, apart from a suffix."""
    mine, theirs = template.owner, pod.owner
    if mine is None or theirs is None or (mine.kind, template.namespace) != (theirs.kind, pod.namespace):
        return False
    prefix, _, suffix = theirs.name.rpartition("-")
    return theirs.name == mine.name or (prefix == mine.name and bool(suffix))


def _asked(arguments: argparse.Namespace) -> Fits:
    """Return the running scheduler's answer."""
    from neuron_scheduler.commands.ask import ask, understood

    params = {"namespace": arguments.namespace} if arguments.namespace else {}
    if arguments.replicas is not None:
        params["replicas"] = str(arguments.replicas)
    buy = purchases(",".join(arguments.buy))
    if buy:
        params["buy"] = ",".join(f"{nodes}x{instance_type}" for nodes, instance_type in buy)
    if arguments.filename:
        text = _content(arguments.filename)
        _workloads(arguments, text, "default", "")
        body = msgspec.json.encode(only_workload(arguments.filename, text))
        params["namespace"] = arguments.namespace  # if empty, `ask` names that of the context
        return Fits((understood(ask(arguments, "/v1/fit", params, body).value, Fit),))
    _workloads(arguments, b"", "default", "")
    size = {
        "devices": ",".join(map(str, arguments.devices)),
        "cores": ",".join(map(str, arguments.cores)),
        "cpu": arguments.cpu,
        "memory": arguments.memory,
        "instanceType": arguments.instance_type,
        "schedulerName": arguments.scheduler_name,
    }
    params |= {name: value for name, value in size.items() if value}
    return Fits((understood(ask(arguments, "/v1/fit", params).value, Fit),))


def _text(answer: Fits, *, wide: bool) -> Iterator[str]:
    text = FitText(terminal(), every_node=wide)
    for number, fit in enumerate(answer.workloads):
        if number:
            yield from ("", "")
        yield from text.lines(fit)
    yield from text.paragraphs.notes(answer.notes)

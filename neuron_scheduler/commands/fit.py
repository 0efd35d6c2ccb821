"""
`neuron-scheduler fit`: how many more pods fit, where they go, and what limits the rest.

The exit code is an answer, too: 1 means that not all fit.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Final

import attrs

from neuron_scheduler.capture.documents import STDIN, Text, content
from neuron_scheduler.capture.sizes import SIZES, count, workload_of_size
from neuron_scheduler.capture.workloads import only_workload, read_workload
from neuron_scheduler.commands import output
from neuron_scheduler.commands.arguments import FORMS, add_cluster, add_namespace, add_output
from neuron_scheduler.commands.fit_text import FitText
from neuron_scheduler.commands.reading import Answered, Reading, compute, one_question
from neuron_scheduler.explain.answers import Fit
from neuron_scheduler.explain.fit import how_many_of
from neuron_scheduler.model.pod import DEFAULT_SCHEDULER
from neuron_scheduler.model.replicated import Replicated
from neuron_scheduler.model.wording import count_text, few_names
from neuron_scheduler.settings.arguments import reader
from neuron_scheduler.steps import run as finished
from neuron_scheduler.telemetry.errors import ConfigurationError
from neuron_scheduler.telemetry.terminal import terminal

ALL_FIT, SOME_DO_NOT = 0, 1
EPILOG: Final = (
    "Exit codes: 0: all wanted replicas fit (without a number: at least one does); 1: they do not; 2: no answer."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Say how many more pods fit now, where the next ones go, and what limits the rest."
        " Changes nothing; needs the right to list nodes and pods, or --from, or --ask."
    )
    parser.epilog = EPILOG
    add = parser.add_argument_group("the pods").add_argument
    add(
        "-f",
        "--filename",
        metavar="FILE",
        default="",
        help="a file with a Pod, Job, CronJob, JobSet, LeaderWorkerSet, Deployment, ReplicaSet, StatefulSet, or one of"
        " Kubeflow's jobs, such as MPIJob, as YAML or JSON; - is standard input",
    )
    add("--devices", metavar="N", default="", help="Neuron devices of a pod; 4,4: two containers")
    add("--cores", metavar="N", default="", help="Neuron cores of a pod, likewise")
    add("--cpu", metavar="QUANTITY", default="", help="cpu of a pod, such as 16 or 500m")
    add("--memory", metavar="QUANTITY", default="", help="memory of a pod, such as 64Gi")
    add("--instance-type", dest="instanceType", metavar="TYPE", default="", help="only on nodes of this type")
    add(
        "--scheduler-name",
        dest="schedulerName",
        metavar="NAME",
        default="",
        help="their scheduler (default: that of the configuration)",
    )
    add(
        "--replicas",
        metavar="N",
        type=reader(count),
        help="the wanted number (default: that of the file; without a file, as many as fit)",
    )
    add_namespace(parser)
    add_output(parser, *FORMS)
    add_cluster(parser)


def run(arguments: argparse.Namespace) -> int:
    size = {name: said for name in SIZES if (said := getattr(arguments, name))}
    if arguments.filename and size:
        raise ConfigurationError("the file of -f says already what a pod asks for; leave out the size, or the file")
    if not (arguments.filename or size):
        raise ConfigurationError("say what is to fit: -f FILE, or a size such as --devices 8 --replicas 4")
    if arguments.filename == STDIN and STDIN in arguments.files:
        raise ConfigurationError("-f and --from cannot both read standard input")
    with one_question():
        file = content(arguments.filename) if arguments.filename else None
        if arguments.ask:
            answer = _ask(arguments, size, file).answer
        else:
            answer = compute(arguments, partial(_fit, arguments, size, file)).answer
        text = FitText(terminal(), every_node=arguments.output == "wide")
        output.write(answer, arguments.output, text.lines(answer))
    return ALL_FIT if answer.fitting >= max(answer.asked, 1) else SOME_DO_NOT


def _fit(arguments: argparse.Namespace, size: dict[str, str], file: Text | None, reading: Reading) -> Fit:
    if file is not None:
        namespace, replicas = reading.namespace, arguments.replicas
        workload = read_workload(arguments.filename, file, namespace=namespace, replicas=replicas)
    else:
        first, replicas = next(iter(reading.profiles)), arguments.replicas or 0
        workload = workload_of_size(size, namespace=reading.namespace, scheduler_name=first, replicas=replicas)
    profile = reading.profile_for(workload.pod_sets[0].template)
    answer = finished(how_many_of(reading.capture.cluster, workload, profile))
    return attrs.evolve(answer, notes=(*answer.notes, *_notes(workload, reading)))


def _notes(workload: Replicated, reading: Reading) -> Iterator[str]:
    others = {pods.template.scheduler_name for pods in workload.pod_sets}
    for name in sorted(others - reading.profiles.keys()):
        ours = next(iter(reading.profiles))
        parts = [pods.name for pods in workload.pod_sets if pods.name and pods.template.scheduler_name == name]
        served = "another scheduler places" if name == DEFAULT_SCHEDULER else "no scheduler that is known here places"
        whose = f" of {few_names(parts)}" if parts else ""
        yield f"The schedulerName{whose} is {name}: {served} these pods; this is what {ours} would do."
    waiting = sum(pod.neuron is not None for pod in reading.capture.waiting)
    if waiting:
        verb = "are" if waiting > 1 else "is"
        yield f"{count_text(waiting, 'pod')} with Neuron {verb} Pending already, and may get the space first."


def _ask(arguments: argparse.Namespace, size: dict[str, str], file: Text | None) -> Answered[Fit]:
    from neuron_scheduler.commands.ask import ask

    params, body = size, None
    if file is not None:
        _, workload = only_workload(arguments.filename, file)
        body = bytes(workload)
    if arguments.filename or arguments.namespace:
        params |= {"namespace": arguments.namespace}  # if empty, `ask` names that of the context
    if arguments.replicas is not None:
        params |= {"replicas": str(arguments.replicas)}
    return ask(arguments, "/v1/fit", params, Fit, body)

"""
`neuron-scheduler why`: why a pod waits, what each filter says of one node, or what waits at all.

The exit code is an answer, too, as with `kubectl diff`: 1 means that a pod waits.
"""

import argparse
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Final

import attrs

from neuron_scheduler.capture.collection import Capture
from neuron_scheduler.commands import output
from neuron_scheduler.commands.arguments import FORMS, add_cluster, add_namespace, add_output
from neuron_scheduler.commands.reading import Answered, Reading, compute, one_question
from neuron_scheduler.commands.why_text import WhyText, waiting_lines
from neuron_scheduler.explain.answers import LEFT_OUT, Explanation, PodSummary, Verdict, Waiting, WaitingEntry
from neuron_scheduler.model.pod import DEFAULT_SCHEDULER, PINS, Pod
from neuron_scheduler.model.wording import few_names
from neuron_scheduler.telemetry.errors import ConfigurationError
from neuron_scheduler.telemetry.line_formats import printable
from neuron_scheduler.telemetry.terminal import terminal

Answer = Explanation | Waiting

FITS, WAITS = 0, 1
EPILOG: Final = (
    "Exit codes: 0: the pod fits or has a node (no pod is Pending); 1: it is Pending (some pod is); 2: no answer."
)
NAMES: Final = "Known names are the profiles' of --config, else of the installation, else my-scheduler."
ALIKE: Final = 0.8
"""Names of schedulers this near to one of ours are said first: they may be mistyped."""
PINNED: Final = (
    f"It sets {' or '.join(PINS)} itself, so its program may use cores of other pods. Remove that from its env: the"
    " device plugin sets it."
)
OURS: Final = "my-scheduler"
TYPES: Final = ("pod", "pods", "po")
CONTROLLERS: Final = ("job", "jobs", "deployment", "deployments", "deploy", "statefulset", "statefulsets", "sts")
"""What kubectl calls them before a slash: of such an object the pods are named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Say why a pod is Pending, and what would let it in. Without POD: list the pending pods with Neuron or our"
        " schedulerName. Changes nothing; needs the right to list nodes and pods, or --from, or --ask."
    )
    parser.epilog = EPILOG
    parser.add_argument(
        "pod",
        metavar="POD",
        nargs="?",
        default="",
        help="NAME, NAMESPACE/NAME or pod/NAME; of job/NAME the pods are named",
    )
    parser.add_argument("--node", metavar="NODE", default="", help="show every filter's answer for this node")
    add_namespace(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="list the pods of all namespaces")
    add_output(parser, *FORMS)
    add_cluster(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.node and not arguments.pod:
        raise ConfigurationError("--node needs a POD")
    with one_question():
        question = _explanation if arguments.pod else _list
        answered = _ask(arguments) if arguments.ask else compute(arguments, partial(question, arguments))
        output.write(answered.answer, arguments.output, _text(answered, arguments))
    return _exit_code(answered.answer)


def _explanation(arguments: argparse.Namespace, reading: Reading) -> Answer:
    from neuron_scheduler.explain.why import NoSuchNodeError, explain_on_node, explain_pod
    from neuron_scheduler.steps import run

    capture = reading.capture
    pod = find_pod(capture, arguments.pod, reading.namespace)
    profile = reading.profile_for(pod)
    if arguments.node:
        try:
            return run(explain_on_node(capture.cluster, pod, profile, arguments.node))
        except NoSuchNodeError as error:
            raise ConfigurationError(printable(str(error))) from None
    answer = run(explain_pod(capture.cluster, pod, profile))
    if pod.key in capture.pinned:
        answer = attrs.evolve(answer, notes=(*answer.notes, PINNED))
    if reading.leaderless and answer.verdict is not Verdict.BOUND and profile.scheduler_name == pod.scheduler_name:
        return attrs.evolve(answer, decider=reading.leaderless)
    return answer


def _list(arguments: argparse.Namespace, reading: Reading) -> Answer:
    from neuron_scheduler.explain.waiting import waiting_list
    from neuron_scheduler.explain.why import summary_of
    from neuron_scheduler.settings.profile_config import RESERVED
    from neuron_scheduler.steps import run

    pods = [
        pod
        for pod in reading.capture.waiting
        if (pod.neuron is not None or pod.refusal or pod.scheduler_name in reading.profiles)
        and pod.scheduler_name != RESERVED  # it asks an autoscaler for a machine, and waits for nothing else
        and (arguments.all_namespaces or pod.namespace == reading.namespace)
    ]
    waiting = run(waiting_list(reading.capture.cluster, pods, reading.profile_for))
    lines = tuple(_with_decider(*pair, reading) for pair in zip(waiting.pods, pods, strict=True))
    leaderless = (reading.leaderless,) if reading.leaderless else ()
    others = [pod for pod in pods if reading.profile_for(pod).scheduler_name not in ("", pod.scheduler_name)]
    decided = _decided_by_others([*map(summary_of, others)], [*reading.profiles])
    return attrs.evolve(waiting, pods=lines, notes=(*leaderless, *waiting.notes, *decided))


def _with_decider(line: WaitingEntry, pod: Pod, reading: Reading) -> WaitingEntry:
    """Return the line of a pod; one that fits, but not by the scheduler that decides it, waits for that name."""
    from neuron_scheduler.explain.why import SCHEDULER_NAME, decider_text

    decider = decider_text(pod, reading.profile_for(pod))
    if line.cause or not decider:
        return line
    return attrs.evolve(line, cause=SCHEDULER_NAME, message=f"{decider} {line.message}")


def _decided_by_others(pods: Sequence[PodSummary], ours: Sequence[str]) -> Iterator[str]:
    """Yield notes on pods that this scheduler never tries."""
    from neuron_scheduler.explain.why import remedy_text

    names = [f"{pod.namespace}/{pod.name}" for pod in pods if pod.scheduler_name == DEFAULT_SCHEDULER]
    if names:
        remedy = remedy_text(ours[0], "their template")
        yield f"{DEFAULT_SCHEDULER} decides these pods: {few_names(names)}. {remedy}"
    others = [pod for pod in pods if pod.scheduler_name != DEFAULT_SCHEDULER]
    others.sort(key=lambda pod: not get_close_matches(pod.scheduler_name, ours, n=1, cutoff=ALIKE))
    unknown = [f"{pod.namespace}/{pod.name} ({pod.scheduler_name})" for pod in others]
    if unknown:
        known = f"No scheduler that is known here serves the schedulerName of {few_names(unknown)}."
        yield f"{known} {remedy_text(ours[0], 'their template')} {NAMES}"


def _ask(arguments: argparse.Namespace) -> Answered[Answer]:
    from neuron_scheduler.commands.ask import ask

    if not arguments.pod:
        asked = ask(arguments, "/v1/waiting", {"namespace": arguments.namespace}, Waiting)
        if arguments.all_namespaces:
            return attrs.evolve(asked, answer=_with_notes_on_others(asked.answer))
        if LEFT_OUT in asked.answer.notes:
            may = f"kubectl auth can-i get pods --namespace {asked.namespace}"
            raise ConfigurationError(f"you may not get the pods of namespace {asked.namespace}: {may}")
        pods = tuple(line for line in asked.answer.pods if line.pod.namespace == asked.namespace)
        answer = attrs.evolve(asked.answer, pods=pods, total=len(pods))
        return attrs.evolve(asked, answer=_with_notes_on_others(answer))
    namespace, name = parse_name(arguments.pod)
    namespace = "" if namespace.lower() in CONTROLLERS else namespace
    params = {"namespace": namespace or arguments.namespace, "pod": name}
    return ask(arguments, "/v1/why", params | ({"node": arguments.node} if arguments.node else {}), Explanation)


def _with_notes_on_others(waiting: Waiting) -> Waiting:
    """Return a list of the running scheduler's with the notes on pods that others decide, as far as it names them."""
    from neuron_scheduler.explain.why import SCHEDULER_NAME

    others = [line.pod for line in waiting.pods if line.cause == SCHEDULER_NAME and line.pod.name]
    return attrs.evolve(waiting, notes=(*waiting.notes, *_decided_by_others(others, [OURS])))


def _text(answered: Answered[Answer], arguments: argparse.Namespace) -> Iterator[str]:
    answer, wide = answered.answer, arguments.output == "wide"
    if isinstance(answer, Waiting):
        place = "in the cluster" if arguments.all_namespaces else f"in namespace {answered.namespace}"
        yield from waiting_lines(answer, place, answered.now, wide=wide)
        yield from terminal().notes(answer.notes)
        return
    yield from WhyText(terminal(), wide=wide, now=answered.now).lines(answer)


def _exit_code(answer: Answer) -> int:
    if isinstance(answer, Waiting):
        return WAITS if answer.pods else FITS
    return FITS if answer.verdict in (Verdict.FITS, Verdict.BOUND) else WAITS


def parse_name(text: str) -> tuple[str, str]:
    """Return the namespace, empty if the text has none, and the name."""
    first, slash, name = text.partition("/")
    if not slash:
        first, name = "", text
    elif not first or not name or "/" in name:
        raise ConfigurationError(f"{text!r} is not a pod: write NAME, NAMESPACE/NAME or pod/NAME")
    return ("" if first.lower() in TYPES else first), name


def find_pod(capture: Capture, text: str, namespace: str) -> Pod:
    own_namespace, name = parse_name(text)
    key = f"{own_namespace or namespace}/{name}"
    pod = capture.pods.get(key)
    if pod is not None:
        return pod
    if own_namespace.lower() in CONTROLLERS:
        own_namespace, key = "", f"{namespace}/{name}"
    shown = printable(key)
    malformed = capture.unreadable.get(key)
    if malformed is not None:
        where = f" on node {malformed.node_name}" if malformed.node_name else ""
        raise ConfigurationError(f"pod {shown}{where} cannot be read: {malformed.reason}")
    from neuron_scheduler.explain.why import pods_of

    near = (pod for pod in capture.pods.values() if pod.namespace in (own_namespace, namespace))
    raise ConfigurationError(f"there is no pod {shown}, or it has ended{printable(pods_of(name, near))}")

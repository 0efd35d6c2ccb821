"""
COUNT: the pod asks for another number of devices or cores.

Smallest: the nearest count below the pod's own that fits now, and the nearest one above it; no count between fits.
Every count is tried that some instance type serves whose nodes pass the pod's other filters; only counts for which none
of these nodes has a free block need no trial. A pod with several containers that ask for Neuron has as many counts:
which of them could change is for its owner to say, so none is offered.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, cast

import attrs

from neuron_scheduler.cluster.view import View
from neuron_scheduler.explain.answers.explanation import Change, ChangeKind
from neuron_scheduler.explain.changes.question import Found, Note, Question, with_template
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.annotations import runs_of
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.topology import served
from neuron_scheduler.scheduling.cycle.neuron_shortage import amount, otherwise_fitting
from neuron_scheduler.scheduling.plugins import neuron_topology

_MOST_TRIED: Final = 16
_SEVERAL: Final = Note("Several of its containers ask for Neuron; other counts for them were not tried.")
_NOT_ALL: Final = Note(f"Only {_MOST_TRIED} other counts were tried; others may fit.")


def find(question: Question) -> Iterator[Found]:
    """Yield the nearest counts that fit, the smaller one first."""
    request, view = question.pod.neuron, question.cluster.view
    if request is None:
        return
    if len(request.counts) + len(request.init_counts) > 1:
        yield _SEVERAL
        return
    yield from view.prepared(_indexes(request))
    yield from question.warmed_up(question.pod)
    legal, possible = _counts(question, request)
    yield None
    below = [count for count in reversed(possible) if count < request.total]
    above = [count for count in possible if count > request.total]
    fitting = yield from _nearest(question, request, below, legal)
    fitting |= yield from _nearest(question, request, above, legal)
    if legal and not fitting and request.total not in legal:
        yield Note(
            f"The nodes that pass its other filters serve counts of {runs_of(legal)} {request.unit}s; none fits now."
        )


def _with_count(pod: Pod, request: NeuronRequest, count: int) -> Pod:
    requests = {**pod.requests, request.resource: pod.requests.get(request.resource, 0) - request.total + count}
    neuron = attrs.evolve(
        request,
        counts=(count,) if request.counts else (),
        init_counts=(count,) if request.init_counts else (),
        total=count,
    )
    return attrs.evolve(pod, neuron=neuron, requests={name: each for name, each in requests.items() if each})


def _indexes(request: NeuronRequest) -> Callable[[View], object]:
    return lambda view: (neuron_topology.machines(view), neuron_topology.largest_blocks(view, request.resource))


def _counts(question: Question, request: NeuronRequest) -> tuple[tuple[int, ...], list[int]]:
    """Return the counts that nodes passing the other filters serve, and those for which some of them has a block."""
    cluster, view = question.cluster, question.cluster.view
    machines = neuron_topology.machines(view)
    with cluster.without_nomination(question.pod.uid):
        nodes = otherwise_fitting(cluster, question.pod, question.profile, machines.keyed & view.live)
    on_these = [machine for machine in cast(frozenset[Machine], machines.values) if machines.get(machine) & nodes]
    legal = sorted({count for machine in on_these for count in served(machine, request.unit)})
    largest = neuron_topology.largest_blocks(view, request.resource).maximum(nodes)
    return tuple(legal), [count for count in legal if count <= largest]


def _nearest(
    question: Question, request: NeuronRequest, counts: Sequence[int], legal: Sequence[int]
) -> Generator[Found, None, bool]:
    """Yield the first of the counts that fits; return whether there is one."""
    for count in counts[:_MOST_TRIED]:
        other = _with_count(question.pod, request, count)
        yield from question.warmed_up(other)
        decision = question.decision(other)
        if decision is not None:
            by_distance = sorted(legal, key=lambda each: (each != count, abs(each - request.total), each))
            serving = f"; the counts that can be served are {runs_of(legal)}" if len(legal) > 1 else ""
            yield Change(
                ChangeKind.COUNT,
                with_template(
                    f"Ask for {amount(count, request.unit)} instead of {request.total}: it then goes to "
                    f"{decision.node_name}{serving}.",
                    question.pod,
                ),
                node_name=decision.node_name,
                counts=tuple(by_distance),
                detail=f"{request.resource}={count}",
            )
            return True
        yield None
    if len(counts) > _MOST_TRIED:
        yield _NOT_ALL
    return False

"""
Pods that say themselves which cores or devices their program uses, whatever is allocated to them.

Only the commands look at that: the scheduler reads no `env`, which is the longest part of many pods.
"""

import attrs

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.pod import PINS, Pod


class _Container(wire.Container):
    env: list[wire.Named] | None = None


class _PodSpec(wire.PodSpec):
    containers: list[_Container] | None = None  # type: ignore[assignment]  # a narrower list, which nothing adds to
    init_containers: list[_Container] | None = None  # type: ignore[assignment]  # as above


class _Pod(wire.Pod):
    spec: _PodSpec


def pods_noting(pinned: set[str]) -> Resource[Pod]:
    """Return the kind of pods; reading one that pins adds its key."""

    def read(struct: _Pod) -> Pod | None:
        pod, spec = PODS.read(struct), struct.spec
        names = {each.name for c in (*(spec.init_containers or ()), *(spec.containers or ())) for each in c.env or ()}
        if pod is not None and not names.isdisjoint(PINS):
            pinned.add(pod.key)
        return pod

    return attrs.evolve(PODS, shape=_Pod, read=read)

"""What fails for ever in a scenario, and for which pods: nobody can bind these, so no oracle asks for it."""

from collections.abc import Mapping
from typing import Final

from neuron_scheduler.kube.writes.binder import Binding
from tests.simulation.deeds import FreezeServer, StopServer
from tests.simulation.http_faults import TOO_LARGE, WEBHOOK
from tests.simulation.scenario import CHUNKS, Scenario

_ANSWERS_LOST: Final = frozenset({*CHUNKS, "stopped", "long step"})
"""What can cost a Binding its answer that the server refuses before any other fault can strike it."""


def hooked(scenario: Scenario, *kinds: str) -> Mapping[str, frozenset[str]]:
    """Return the namespaces for which something of these kinds fails for ever, by the kind of traffic."""
    faults = [fault for fault in scenario.faults if fault.kind in kinds]
    return {
        traffic: frozenset(fault.detail for fault in faults if fault.target == traffic)
        for traffic in ("bindings", "statuses")
    }


def unbindable(scenario: Scenario) -> frozenset[str]:
    """Return the namespaces whose pods no Binding reaches."""
    return hooked(scenario, WEBHOOK, TOO_LARGE)["bindings"]


def stays_in_doubt(scenario: Scenario, binding: Binding) -> bool:
    """
    Return whether nothing can tell what became of a Binding: its pod rightly holds its place for ever.

    A webhook that fails says nothing about it. "Too large" is definite for the try that it answers, and not for an
    earlier one without an answer: a server that was frozen with it may carry it out when the pod has become smaller.
    So such a Binding may be in doubt, but only if it says so itself, and something has happened that can cost a request
    its answer.
    """
    if binding.pod.namespace in hooked(scenario, WEBHOOK)["bindings"]:
        return True
    too_large = binding.pod.namespace in hooked(scenario, TOO_LARGE)["bindings"]
    return too_large and binding.unknown and _answers_lost(scenario)


def _answers_lost(scenario: Scenario) -> bool:
    servers = any(isinstance(deed, FreezeServer | StopServer) for deed in scenario.deeds)
    return servers or any(fault.kind in _ANSWERS_LOST for fault in scenario.faults)

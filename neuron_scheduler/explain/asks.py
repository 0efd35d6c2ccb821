"""What a pod asks for of Neuron, as people say it; one place, so that every answer says it alike."""

from neuron_scheduler.model.neuron_request import NeuronRequest, Unit


def asks(request: NeuronRequest | None) -> str:
    """Return what a pod asks for, such as `8 Neuron devices (4 + 4)`; empty for a pod without Neuron."""
    if request is None:
        return ""
    noun = "Neuron device" if request.unit is Unit.DEVICE else "Neuron core"
    parts = f" ({' + '.join(map(str, request.widest))})" if len(request.widest) > 1 else ""
    return f"{request.total} {noun}{'s' if request.total != 1 else ''}{parts}"

"""Label selectors and tolerations, from the wire to the model."""

from typing import Any

import msgspec
import pytest

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.selectors import selector_of_others, tolerations
from neuron_scheduler.kube.objects.wire import Selector
from neuron_scheduler.model.selectors import Effect, Toleration


def test_a_selector_of_more_requirements_than_anybody_needs() -> None:
    """Reading it would block the event loop."""
    with pytest.raises(ValueError, match="more than 500 requirements"):
        selector_of_others(Selector(match_labels={f"k{number}": "v" for number in range(6000)}))


TOLERATIONS: dict[str, tuple[dict[str, Any], Toleration]] = {
    "an absent operator is Equal": ({"key": "k", "value": "v"}, Toleration("k", value="v")),
    "Exists": ({"operator": "Exists", "effect": "NoSchedule"}, Toleration(exists=True, effect=Effect.NO_SCHEDULE)),
    "an empty effect is every effect": ({"key": "k", "effect": ""}, Toleration("k")),
    "Lt": ({"key": "k", "operator": "Lt", "value": "3"}, Toleration("k", value="3", unreadable=True)),
    "an unknown effect": ({"key": "k", "effect": "Maybe"}, Toleration("k", unreadable=True)),
}


@pytest.mark.parametrize("sentence", TOLERATIONS)
def test_tolerations(sentence: str) -> None:
    """A toleration that no release supports tolerates nothing."""
    toleration, want = TOLERATIONS[sentence]

    assert (want,) == tolerations([msgspec.convert(toleration, wire.Toleration)])

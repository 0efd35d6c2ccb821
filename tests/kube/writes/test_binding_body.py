"""Which annotations a Binding may carry."""

import pytest

from neuron_scheduler.kube.writes.binding_body import unusable


@pytest.mark.parametrize("key", ["AWS_NEURON_IDS", "neuron-scheduler/allocation", "a.b-c/D_e.f", "x" * 63])
def test_valid_keys(key: str) -> None:
    """Ours, and what the API server accepts."""
    assert not unusable({key: "x"}, already=0)


def test_too_many_annotations() -> None:
    """Those that the pod has already count."""
    assert not unusable({"a": "x" * ((256 << 10) - 11)}, already=10)
    assert "are allowed" in unusable({"a": "x" * ((256 << 10) - 10)}, already=10)

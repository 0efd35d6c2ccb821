"""A placed pod differs from the pending one in its node and its allocation only."""

from typing import Any

import attrs

from neuron_scheduler.model.pod import Pod, assigned_pod


def test_a_placed_pod_differs_in_where_it_is_and_what_it_is_given() -> None:
    """Every other field is the same object."""
    some: dict[str, Any] = {field.name: object() for field in attrs.fields(Pod)}
    before = Pod(**some)
    after = assigned_pod(before, "n1", {"a": "b"})

    assert after == attrs.evolve(before, node_name="n1", allocation={"a": "b"})
    assert before.node_name != "n1"

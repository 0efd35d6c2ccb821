"""The instance type of a node."""

import pytest

from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, Node


@pytest.mark.parametrize(
    ("label", "want"),
    [("trn1.32xlarge", "trn1.32xlarge"), ("ml.trn1.32xlarge", "trn1.32xlarge"), ("xml.trn1", "xml.trn1"), ("", "")],
)
def test_instance_types_lose_the_prefix_of_hyperpod(label: str, want: str) -> None:
    """`ml.trn1.32xlarge` is the same instance type."""
    assert Node("u", "n", labels={INSTANCE_TYPE_LABEL: label}).instance_type == want


def test_a_node_without_labels_has_no_type() -> None:
    """A node without the label is no error."""
    assert not Node("u", "n").instance_type

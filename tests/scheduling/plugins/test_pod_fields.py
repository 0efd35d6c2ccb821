"""A pod leaves a field out if it has the default."""

import attrs
import pytest

from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.scheduling.plugins.pod_fields import PodField, left_out
from tests.support.builders import pod

FIELDS = tuple(PodField)


@pytest.mark.parametrize(
    ("some", "present"),
    [
        pytest.param(Pod("u", "default", "p"), set(), id="nothing"),
        pytest.param(pod(devices=1), {PodField.NEURON}, id="a request"),
        pytest.param(pod(cpu=1, labels={"a": "b"}, priority=5), set(), id="what every pod has"),
        pytest.param(pod(refusal="no"), {PodField.REFUSAL}, id="a text"),
        pytest.param(
            pod(constraints=Constraints(required_terms=())), {PodField.REQUIRED_TERMS}, id="terms that match no node"
        ),
        pytest.param(
            pod(constraints=Constraints(node_selector={"a": "b"}, volume_claims=("c",))),
            {PodField.NODE_SELECTOR, PodField.VOLUME_CLAIMS},
            id="two constraints",
        ),
    ],
)
def test_what_is_left_out(some: Pod, present: set[PodField]) -> None:
    """An empty value is left out, but not where None stands for nothing."""
    absent = left_out(FIELDS)(some)
    assert {field for field, is_absent in zip(FIELDS, absent, strict=True) if not is_absent} == present


def test_only_the_fields_that_are_asked_for() -> None:
    """In their order, and none is an answer too."""
    some = pod(devices=1)
    assert left_out((PodField.IMAGES, PodField.NEURON))(some) == (True, False)
    assert left_out(())(some) == ()


def test_each_field_is_an_attribute_of_one_class() -> None:
    """No two fields have one name, by which the signature of refused pods knows them."""
    names = [field.attribute for field in PodField]
    assert len(set(names)) == len(names)
    assert not attrs.fields_dict(Pod).keys() & attrs.fields_dict(Constraints).keys()

"""Namespaces from the wire."""

from neuron_scheduler.kube.objects.base import Decoded, Malformed
from neuron_scheduler.kube.objects.namespaces import NAMESPACES
from neuron_scheduler.model.namespace import Namespace
from tests.support.wire_objects import encoded


def test_a_namespace() -> None:
    """Its labels are all that is read."""
    found = {"metadata": {"name": "ns", "uid": "u", "resourceVersion": "3", "labels": {"team": "a"}}, "spec": {}}
    assert NAMESPACES.decode(encoded(found)) == Decoded("ns", "u", "3", Namespace("u", "ns", {"team": "a"}))


def test_an_unreadable_namespace_keeps_its_name() -> None:
    """It is set aside under its name; noise has none."""
    found = NAMESPACES.decode(encoded({"metadata": {"name": "ns", "uid": "u", "labels": 7}}))
    assert found.key == "ns"
    assert isinstance(found.value, Malformed)
    assert (found.value.kind, found.value.uid) == ("Namespace", "u")
    assert NAMESPACES.decode(b"{").key == ""

"""Namespaces from the wire."""

from neuron_scheduler.kube.objects.base import Decoded, Malformed
from neuron_scheduler.kube.objects.namespaces import NAMESPACES
from neuron_scheduler.model.namespace import Namespace
from tests.support.wire_objects import encoded


def test_a_namespace() -> None:
    """Only its labels are read."""
    namespace = {"metadata": {"name": "ns", "uid": "u", "resourceVersion": "3", "labels": {"team": "a"}}, "spec": {}}
    assert NAMESPACES.decode(encoded(namespace)) == Decoded("ns", "u", "3", Namespace("u", "ns", {"team": "a"}))


def test_an_unreadable_namespace_keeps_its_name() -> None:
    """It is malformed, under its name; noise has none."""
    decoded = NAMESPACES.decode(encoded({"metadata": {"name": "ns", "uid": "u", "labels": 7}}))
    assert decoded.key == "ns"
    assert isinstance(decoded.value, Malformed)
    assert (decoded.value.kind, decoded.value.uid) == ("Namespace", "u")
    assert NAMESPACES.decode(b"{").key == ""

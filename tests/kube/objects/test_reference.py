"""What one object calls another one: any text, as far as the API server is concerned."""

import msgspec
import pytest

from neuron_scheduler.kube.objects.pod_constraints import constraints
from neuron_scheduler.kube.objects.pod_wire import PodSpec
from neuron_scheduler.kube.objects.reference import MOST, reference
from neuron_scheduler.kube.objects.storage import CLAIMS
from neuron_scheduler.model.annotations import BETA_STORAGE_CLASS
from neuron_scheduler.model.volumes import PersistentVolumeClaim

HOSTILE = 'a\nE1121 08:15:04 "forged"\r\x1b[2J\u202e'
SHOWN = r'a\nE1121 08:15:04 "forged"\r\x1b[2J\u202e'


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("data-web-0", "data-web-0", id="a name stays"),
        pytest.param("a" * MOST, "a" * MOST, id="the longest name stays"),
        pytest.param("a" * (MOST + 1), "a" * MOST + "...", id="what is cut ends like no name"),
        pytest.param(HOSTILE, SHOWN, id="control characters are shown"),
        pytest.param("\x00" * 1_000_000, r"\x00" * MOST + "...", id="both"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_a_reference(text: str, want: str) -> None:
    """It is short and printable, and a text that no object can have as its name does not become one."""
    assert reference(text) == want


def test_every_reference_that_is_not_checked_is_read_like_that() -> None:
    """A pod's claim, a claim's volume, and a claim's class in its annotation, which only this scheduler checks."""
    spec = msgspec.convert({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": HOSTILE}}]}, PodSpec)
    assert constraints(spec, pod="p", namespace="default").volume_claims == (SHOWN,)
    metadata = {"uid": "1", "namespace": "default", "name": "c", "annotations": {BETA_STORAGE_CLASS: HOSTILE}}
    claim = CLAIMS.decode(msgspec.json.encode({"metadata": metadata, "spec": {"volumeName": HOSTILE}})).value
    assert isinstance(claim, PersistentVolumeClaim)
    assert (claim.volume_name, claim.class_name) == (SHOWN, SHOWN)

"""An object in an answer is read, however deep its managedFields are."""

import msgspec
import pytest

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.stored_object import stored_object, stored_pod

FLAT = '{"kind": "Pod", "metadata": {"name": "p", "uid": "u1", "managedFields": []}, "spec": {"nodeName": "n1"}}'
# Deeper than any Python lets the decoder go: 3.11 stops at about a thousand levels, 3.13 at ten thousand.
NESTED = "[" * 200_000 + "]" * 200_000


async def test_deep_managed_fields_change_nothing() -> None:
    """The pod is the same with them, and so is any other object."""
    deep = FLAT.replace('"managedFields": []', f'"managedFields": {NESTED}')
    assert await stored_pod(deep.encode()) == await stored_pod(FLAT.encode())
    version = msgspec.json.Decoder(wire.Versioned)
    assert await stored_object(deep.encode(), version) == await stored_object(FLAT.encode(), version)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (FLAT.replace("{", f'{{"x": {NESTED}, ', 1), RecursionError),
        (f'{{"metadata": {{"managedFields": {NESTED}', ValueError),
        ("<html/>", ValueError),
        ('{"kind": "Pod"}', ValueError),
        (FLAT.replace("nodeName", "nodeNam\udcff"), ValueError),
    ],
    ids=["deep elsewhere", "cut off", "a page", "no pod", "damaged name"],
)
async def test_what_is_no_pod(text: str, error: type[Exception]) -> None:
    """It raises one of two errors, which its callers expect."""
    with pytest.raises(error):
        await stored_pod(text.encode(errors="surrogateescape"))


async def test_bytes_that_are_no_text_in_managed_fields_change_nothing() -> None:
    """Users may write them, and the API server sends them as they are."""
    odd = FLAT.replace('"managedFields": []', '"managedFields": ["\udcff"]').encode(errors="surrogateescape")
    assert await stored_pod(odd) == await stored_pod(FLAT.encode())

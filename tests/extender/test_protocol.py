"""The extender's structures have Go's names on the wire, and what cannot be read is one kind of error."""

import json

import pytest

from neuron_scheduler.extender.protocol import (
    NULL,
    ExtenderArgs,
    ExtenderPreemptionResult,
    MalformedRequestError,
    MetaPod,
    MetaVictims,
    decode,
    encode,
)


def test_names_on_the_wire() -> None:
    """Fields whose names Go writes otherwise; those of the other verbs are in `test_verbs`."""
    result = ExtenderPreemptionResult({"n1": MetaVictims([MetaPod("u")], num_pdb_violations=1)})
    wire = {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}}
    assert json.loads(encode(result)) == wire
    assert decode(json.dumps(wire).encode(), ExtenderPreemptionResult) == result


def test_what_is_missing_is_null() -> None:
    """Fields that are null or missing, and unknown fields, are no error: Go omits and adds them."""
    assert decode(b'{"Pod":null,"NodeNames":null,"New":1}', ExtenderArgs) == decode(b"{}", ExtenderArgs)
    assert bytes(decode(b"{}", ExtenderArgs).pod) == bytes(NULL)


@pytest.mark.parametrize(
    "text", [b"", b"x", b"[1]", b"{", b"{} x", b"\xff", b'{"NodeNames":[1]}', b'{"a":' + b"[" * 9999]
)
def test_what_cannot_be_read(text: bytes) -> None:
    """Every mistake is the same error, with a short sentence."""
    with pytest.raises(MalformedRequestError, match=r".+") as caught:
        decode(text, ExtenderArgs)
    assert len(str(caught.value)) <= 300

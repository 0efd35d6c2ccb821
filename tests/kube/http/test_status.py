"""Refusals of the API server are distinguished from those of proxies."""

import json

import pytest

from neuron_scheduler.kube.http.status import api_error

GONE = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": 'pods "p" not found',
    "reason": "NotFound",
    "details": {"name": "p", "kind": "pods"},
    "code": 404,
}


def test_gone() -> None:
    """Reason, kind, name and uid, if there is one, must be those of the object."""
    error = api_error(404, {}, json.dumps(GONE).encode())
    assert error.is_refusal
    assert error.is_gone("pods", "p")
    assert not error.is_gone("pods", "q")
    assert not error.is_gone("nodes", "p")
    with_uid = api_error(404, {}, json.dumps(GONE | {"details": {"name": "p", "kind": "pods", "uid": "u"}}).encode())
    assert with_uid.is_gone("pods", "p", "u")
    assert not with_uid.is_gone("pods", "p", "v")


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "Error"},
        {"apiVersion": "v2"},
        {"status": "Success"},
        {"status": None},
        {"code": 200},
        {"reason": "Gone"},
        {"details": None},
    ],
    ids=str,
)
def test_what_is_not_gone(changed: dict[str, object]) -> None:
    """Each part of the answer is needed."""
    assert not api_error(404, {}, json.dumps(GONE | changed).encode()).is_gone("pods", "p")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html/>",
        b"{}",
        b'{"kind": 1}',
        b"\xff",
        b'{"message": "\xed\xa0\x80"}',
        b'{"details": {"retryAfterSeconds": ' + b"9" * 5_000 + b"}}",
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
    ],
)
def test_a_foreign_answer_is_no_refusal(body: bytes) -> None:
    """A body that is no Status is not a refusal by the API server, whatever it contains."""
    error = api_error(404, {}, body)
    assert error.status == 404
    assert not error.is_refusal
    assert not error.is_status


def test_too_large() -> None:
    """The message of etcd counts, in a Status of any code."""
    for code in (409, 500):
        refusal = GONE | {"code": code, "reason": "", "message": "x: etcdserver: request is too large"}
        assert api_error(code, {}, json.dumps(refusal).encode()).is_too_large
    assert not api_error(500, {}, b"etcdserver: request is too large").is_too_large

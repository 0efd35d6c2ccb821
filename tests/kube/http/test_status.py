"""Answers of the API server are distinguished from answers of proxies."""

import json

import msgspec
import pytest

from neuron_scheduler.kube.http.status import api_error, confirms

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
    assert error.refused
    assert error.gone("pods", "p")
    assert not error.gone("pods", "q")
    assert not error.gone("nodes", "p")
    with_uid = api_error(404, {}, json.dumps(GONE | {"details": {"name": "p", "kind": "pods", "uid": "u"}}).encode())
    assert with_uid.gone("pods", "p", "u")
    assert not with_uid.gone("pods", "p", "v")


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
    assert not api_error(404, {}, json.dumps(GONE | changed).encode()).gone("pods", "p")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html/>",
        b'{"kind":"Pod","apiVersion":"v1\xff"}',
        b"[]",
        b"{}",
        b"null",
        b'{"kind": 1}',
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
    ],
)
def test_a_foreign_answer_is_no_refusal(body: bytes) -> None:
    """A body that is no Status is not a refusal by the API server, whatever it contains."""
    error = api_error(404, {}, body)
    assert not error.refused
    assert not error.is_status
    assert not confirms(body, "Pod") or body.startswith(b'{"a"')


def test_too_large() -> None:
    """The message of etcd counts, in a Status of any code."""
    for code in (409, 500):
        refusal = GONE | {"code": code, "reason": "", "message": "x: etcdserver: request is too large"}
        assert api_error(code, {}, json.dumps(refusal).encode()).too_large
    assert not api_error(500, {}, b"etcdserver: request is too large").too_large


def test_success() -> None:
    """A Status of success, or the object: its kind, with a version."""
    assert confirms(b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}', "Binding")
    assert confirms(b'{"kind":"Pod","apiVersion":"v1","metadata":{},"status":{"phase":"Pending"}}', "Pod")
    assert not confirms(b'{"kind":"Status","apiVersion":"v1","status":"Failure"}', "Pod")
    assert not confirms(b'{"kind":"Node","apiVersion":"v1"}', "Pod")
    assert not confirms(b'{"kind":"Pod"}', "Pod")


def test_an_object_nested_too_deeply_is_an_object() -> None:
    """A pod with such a field does not make the answer to our write invalid."""
    deep = b'{"kind":"Pod","apiVersion":"v1","metadata":' + b'{"f":' * 3000 + b"{}" + b"}" * 3000 + b"}"
    assert confirms(deep, "Pod")


@pytest.mark.parametrize("name", ["reason", "message", "details", "code"])
def test_a_damaged_status_is_no_refusal(name: str) -> None:
    """Without one of its fields it would say something else."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}
    text = msgspec.json.encode({**body, "message": "not found", "details": {"kind": "pods", "name": "p"}})
    assert api_error(404, {}, text).refused
    error = api_error(404, {}, text.replace(f'"{name}"'.encode(), f'"{name[:-1]}'.encode() + b'\xff"'))

    assert not error.refused
    assert not error.is_status

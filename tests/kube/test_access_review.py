"""The rights are reviewed until the API server has answered."""

import contextlib

import attrs
import pytest

from neuron_scheduler.errors import ApiError, ConfigurationError, UnreachableError
from neuron_scheduler.kube import access_review
from neuron_scheduler.kube.http.client import Response

ALLOWED = b'{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "status": {"allowed": true}}'


@attrs.define(eq=False)
class Answers:
    """A client that gives these answers in turn, and remembers what it was asked."""

    left: list[bytes | Exception]
    asked: list[tuple[str, str, bytes | None]] = attrs.field(factory=list)
    limits: list[float] = attrs.field(factory=list)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        timeout: float = 30.0,  # noqa: ASYNC109 - as in the client
    ) -> Response:
        """Return the next answer."""
        self.asked.append((method, path, body))
        self.limits.append(timeout)
        answer = self.left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Response(201, answer)


@pytest.mark.parametrize(
    "foreign",
    [
        UnreachableError("cut"),
        b"<html>log in first",
        b"",
        b"{}",
        b'{"status": {"allowed": "\xff"}}',
        b'{"x": ' + b"[" * 100_000,
    ],
)
async def test_a_foreign_answer_does_not_end_the_start(
    foreign: bytes | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy may answer anything in place of a server that is starting."""
    monkeypatch.setattr(access_review, "_PAUSE", 0.0)
    client = Answers([*[foreign] * 9, ALLOWED])
    await access_review.require(client, (access_review.Right("list", "pods"),))

    assert not client.left
    assert client.asked[0] == client.asked[1]
    assert set(client.limits) == {10.0}, "a dead connection delays the start for no longer"


@pytest.mark.parametrize("is_status", [True, False])
async def test_only_the_api_server_refuses_our_credentials(is_status: bool) -> None:
    """A proxy's 401 means nothing; later requests find out."""
    client = Answers([ApiError(401, is_status=is_status)])
    with contextlib.nullcontext() if not is_status else pytest.raises(ConfigurationError, match="credentials"):
        await access_review.require(client, (access_review.Right("list", "pods"),))

    assert not client.left

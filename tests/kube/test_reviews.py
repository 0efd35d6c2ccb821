"""Our own rights are reviewed until the API server has answered; readers by TokenReview and SubjectAccessReview."""

import contextlib
from typing import cast

import attrs
import pytest

from neuron_scheduler.kube import reviews
from neuron_scheduler.kube.http.client import Client, Response
from neuron_scheduler.kube.reviews import Right, User, UserReviews
from neuron_scheduler.telemetry.errors import ApiError, ConfigurationError, UnreachableError
from tests.support.scripted_server import Answer, answer, refuse, scripted

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
    ],
)
async def test_a_foreign_answer_does_not_end_the_start(
    foreign: bytes | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy may answer anything in place of a server that is starting."""
    monkeypatch.setattr(reviews, "_PAUSE", 0.0)
    answers = Answers([*[foreign] * 9, ALLOWED])
    await reviews.require(cast(Client, answers), (reviews.Right("list", "pods"),))

    assert not answers.left
    assert answers.asked[0] == answers.asked[1]
    assert set(answers.limits) == {10.0}, "a dead connection delays the start for no longer"


@pytest.mark.parametrize("is_status", [True, False])
async def test_only_the_api_server_refuses_our_credentials(is_status: bool) -> None:
    """A proxy's 401 means nothing; later requests find out."""
    answers = Answers([ApiError(401, is_status=is_status)])
    with contextlib.nullcontext() if not is_status else pytest.raises(ConfigurationError, match="credentials"):
        await reviews.require(cast(Client, answers), (reviews.Right("list", "pods"),))

    assert not answers.left


WHO = User(username="jane", uid="1", groups=["a", "b"], extra={"scopes": ["x"]})


def reviewed(kind: str, status: object) -> Answer:
    return answer({"apiVersion": "v1", "kind": kind, "status": status}, status=201)


async def test_who_holds_a_token() -> None:
    """The token is sent, and the user is returned with all fields."""
    user = {"username": "jane", "uid": "1", "groups": ["a", "b"], "extra": {"scopes": ["x"]}}
    async with scripted(reviewed("TokenReview", {"authenticated": True, "user": user})) as (server, client):
        assert await UserReviews(client).user_of("a token") == WHO
    assert [(seen.method, seen.path) for seen in server.seen] == [
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews")
    ]
    assert server.seen[0].json == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": "a token"},
    }


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False, "error": "invalid bearer token", "user": {"username": "jane"}},
        {"authenticated": True, "user": {}},
        {"authenticated": True},
    ],
    ids=repr,
)
async def test_nobody(status: object) -> None:
    """A token that is not accepted, or has no user, gives no user."""
    async with scripted(reviewed("TokenReview", status)) as (_, client):
        assert await UserReviews(client).user_of("a token") is None


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ({"allowed": True}, True),
        ({"allowed": False}, False),
        ({"allowed": True, "denied": True}, False),
        ({}, False),
    ],
    ids=repr,
)
async def test_what_a_user_may_get(status: object, *, want: bool) -> None:
    """All fields of the user are passed on."""
    async with scripted(reviewed("SubjectAccessReview", status)) as (server, client):
        assert await UserReviews(client).may_get(WHO, "/metrics") is want
    assert server.seen[0].path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert server.seen[0].json["spec"] == {
        "user": "jane",
        "uid": "1",
        "groups": ["a", "b"],
        "extra": {"scopes": ["x"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


async def test_whether_an_account_has_a_right() -> None:
    """User, groups and attributes are passed on."""
    right = Right("create", "pods/binding")
    async with scripted(
        reviewed("SubjectAccessReview", {"allowed": True}), reviewed("SubjectAccessReview", {"allowed": False})
    ) as (server, client):
        assert await UserReviews(client).may("system:serviceaccount:a:b", ("g",), right.attributes)
        assert not await UserReviews(client).may("system:serviceaccount:a:b", (), right.attributes)
    spec = server.seen[0].json["spec"]
    assert (spec["user"], spec["groups"]) == ("system:serviceaccount:a:b", ["g"])
    assert spec["resourceAttributes"] == {
        "verb": "create",
        "group": "",
        "resource": "pods",
        "subresource": "binding",
        "namespace": "",
        "name": "",
    }


async def test_no_answer() -> None:
    """A refusal, garbage or a proxy's answer is an error, never a yes or a no."""
    foreign = answer("[]"), answer("cut")
    deep = answer('{"apiVersion": "v1", "kind": "TokenReview", "status": ' + "[" * 5000 + "]" * 5000 + "}")
    async with scripted(refuse(403), *foreign, deep) as (_, client):
        reviews = UserReviews(client)
        with pytest.raises(ApiError):
            await reviews.user_of("a token")
        for _ in (*foreign, deep):
            with pytest.raises(UnreachableError, match="cannot be read"):
                await reviews.user_of("a token")


@pytest.mark.parametrize(
    ("lacking", "advice"),
    [
        (reviews.CLAIMING[:2], "apply manifests/components/claims (for --claims)"),
        (reviews.REVIEWING, "apply manifests/components/questions (for --answer-questions) or"),
        ((Right("list", "pods"), *reviews.CLAIMING), "apply manifests/base/rbac.yaml or the chart"),
    ],
)
async def test_the_advice_names_what_grants_the_rights(
    lacking: tuple[Right, ...], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A component where only its rights are missing."""
    monkeypatch.setattr(reviews, "_PAUSE", 0.0)
    answers = Answers([*[ALLOWED.replace(b"true", b"false")] * 3 * len(lacking)])
    with pytest.raises(ConfigurationError) as error:
        await reviews.require(cast(Client, answers), lacking)
    assert advice in str(error.value)

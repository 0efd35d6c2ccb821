"""TokenReview and SubjectAccessReview on the wire."""

import pytest

from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.kube.access_review import Right
from neuron_scheduler.kube.user_review import User, UserReviews
from tests.support.scripted_server import Answer, answer, refuse, scripted

WHO = User(username="jane", uid="1", groups=["a", "b"], extra={"scopes": ["x"]})


def reviewed(kind: str, status: object) -> Answer:
    """Answer a review."""
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


@pytest.mark.parametrize("status", [401, 403])
async def test_a_proxys_refusal_is_no_answer(status: int) -> None:
    """Only the API server says that a right is missing, or that it does not know us; `check` would repeat it."""
    async with scripted(answer("<html/>", status=status), refuse(status)) as (_, client):
        reviews = UserReviews(client)
        with pytest.raises(UnreachableError, match=f"{status}, and not from an API server"):
            await reviews.may("system:serviceaccount:a:b", (), Right("create", "pods/binding").attributes)
        with pytest.raises(ApiError):
            await reviews.may("system:serviceaccount:a:b", (), Right("create", "pods/binding").attributes)


@pytest.mark.parametrize("message", ["Too many requests, please try again later.", "<html/>"])
async def test_too_many_requests_are_named(message: str) -> None:
    """Whoever says so, the status is passed on."""
    async with scripted(answer(message, status=429)) as (_, client):
        with pytest.raises(ApiError, match="429"):
            await UserReviews(client).user_of("a token")


async def test_no_answer() -> None:
    """A refusal, garbage or a proxy's answer is an error, never a yes or a no."""
    foreign = answer({}), answer("[]"), answer("cut"), answer({"status": {"authenticated": True, "user": {}}})
    deep = answer('{"apiVersion": "v1", "kind": "TokenReview", "status": ' + "[" * 5000 + "]" * 5000 + "}")
    async with scripted(refuse(403), *foreign, deep) as (_, client):
        reviews = UserReviews(client)
        with pytest.raises(ApiError):
            await reviews.user_of("a token")
        for _ in (*foreign, deep):
            with pytest.raises(UnreachableError, match=r"cannot be read|not from an API server"):
                await reviews.user_of("a token")

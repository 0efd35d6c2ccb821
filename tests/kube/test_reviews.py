"""TokenReview and SubjectAccessReview on the wire."""

import pytest

from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.kube.reviews import Reviews, User
from tests.kube.scripted import answer, refuse, scripted

WHO = User(username="jane", uid="1", groups=["a", "b"], extra={"scopes": ["x"]})


async def test_who_holds_a_token() -> None:
    """The token is sent, and the user comes back with all that is known of them."""
    user = {"username": "jane", "uid": "1", "groups": ["a", "b"], "extra": {"scopes": ["x"]}}
    async with scripted(answer({"status": {"authenticated": True, "user": user}}, status=201)) as (server, client):
        assert await Reviews(client).user_of("a token") == WHO
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
    async with scripted(answer({"status": status})) as (_, client):
        assert await Reviews(client).user_of("a token") is None


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
    """All that is known of the user is passed on."""
    async with scripted(answer({"status": status}, status=201)) as (server, client):
        assert await Reviews(client).may_get(WHO, "/metrics") is want
    assert server.seen[0].path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert server.seen[0].json["spec"] == {
        "user": "jane",
        "uid": "1",
        "groups": ["a", "b"],
        "extra": {"scopes": ["x"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


async def test_no_answer() -> None:
    """A refusal and garbage are errors, never a yes or a no."""
    async with scripted(refuse(403), answer("[]"), answer("cut")) as (_, client):
        reviews = Reviews(client)
        with pytest.raises(ApiError):
            await reviews.user_of("a token")
        for _ in range(2):
            with pytest.raises(UnreachableError, match="cannot be read"):
                await reviews.user_of("a token")

"""
The four reviews: who a token's holder is, who a client is, and what either may do.

The sandbox allows everything, and its own clients need no token. A token that a third party holds is reviewed, because
a scheduler asks for it before it shows names. Does not look at what the right is.
"""

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from neuron_scheduler.sandbox.apiserver.rest import decoded, json_response
from neuron_scheduler.sandbox.apiserver.status import method_not_allowed

_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
_TOKENS: Final = f"/apis/{_AUTHENTICATION}/v1/tokenreviews"
_KINDS: Final = {
    _TOKENS: (_AUTHENTICATION, "TokenReview"),
    f"/apis/{_AUTHENTICATION}/v1/selfsubjectreviews": (_AUTHENTICATION, "SelfSubjectReview"),
    f"/apis/{_AUTHORIZATION}/v1/subjectaccessreviews": (_AUTHORIZATION, "SubjectAccessReview"),
    f"/apis/{_AUTHORIZATION}/v1/selfsubjectaccessreviews": (_AUTHORIZATION, "SelfSubjectAccessReview"),
}


def is_review(path: str) -> bool:
    """Return whether a path is that of a review."""
    return path in _KINDS


async def review(request: web.Request, tokens: Mapping[str, str]) -> web.Response:
    """
    Return a review's outcome; `tokens` has the user of each token.

    Raises:
        StatusError: it is no POST, or a TokenReview that cannot be read. Other bodies, often protobuf, are not read.
    """
    if request.method != "POST":
        raise method_not_allowed()
    group, kind = _KINDS[request.path]
    status: dict[str, Any] = {"allowed": True, "reason": "the sandbox allows everything"}
    if request.path == _TOKENS:
        body = await decoded(request)
        user = tokens.get(str((body.get("spec") or {}).get("token")))
        status = {"authenticated": user is not None, "user": _user(user) if user is not None else {}}
    elif group == _AUTHENTICATION:
        status = {"userInfo": _user("sandbox") | {"groups": ["system:masters"]}}
    answer = {"kind": kind, "apiVersion": f"{group}/v1", "metadata": {}, "spec": {}, "status": status}
    return json_response(answer, status=201)


def _user(name: str) -> dict[str, Any]:
    return {"username": name, "groups": ["system:authenticated"]}

"""A kubeconfig's `as` is our user for the API server, with every kind of request."""

import json
from pathlib import Path
from typing import Any

import yaml

from neuron_scheduler.kube.http.auth import Connection, load
from neuron_scheduler.kube.http.client import Client
from tests.control_plane.server import ControlPlane

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}'


async def acting(plane: ControlPlane, folder: Path, **user: Any) -> Connection:
    """Load a kubeconfig of the administrator with impersonation."""
    path = plane.kubeconfig(folder / "config")
    content = yaml.safe_load(path.read_text())
    content["users"][0]["user"] |= {key.replace("_", "-"): value for key, value in user.items()}
    path.write_text(yaml.safe_dump(content))
    return await load(str(path))


async def test_who_the_api_server_takes_us_for(control_plane: ControlPlane, tmp_path: Path) -> None:
    """User, uid, groups and extra arrive as they are written, whatever characters they have."""
    connection = await acting(
        control_plane,
        tmp_path,
        **{"as": "J\xfcrgen"},
        as_uid="7",
        as_groups=["a", "b b"],
        as_user_extra={"example.com/sc%pe": ["x", "y"]},
    )
    async with Client(connection=connection) as client:
        answer = await client.request("POST", REVIEWS, body=REVIEW)

    assert json.loads(answer.body)["status"]["userInfo"] == {
        "username": "J\xfcrgen",
        "uid": "7",
        "groups": ["a", "b b", "system:authenticated"],
        "extra": {"example.com/sc%pe": ["x", "y"]},
    }

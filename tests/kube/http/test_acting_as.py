"""A kubeconfig's `as` is our user for the API server, with every kind of request."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuron_scheduler.kube.http.auth import Connection, load
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.telemetry.errors import ApiError
from tests.control_plane.server import ControlPlane
from tests.support.patience import PATIENCE

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}'
NODES = "/api/v1/nodes"


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


async def test_somebody_without_rights(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Reads, writes and watches are refused, although the kubeconfig's token is the administrator's."""
    async with Client(connection=await acting(control_plane, tmp_path, **{"as": "nobody"})) as client:
        for method, body in (("GET", None), ("POST", b"{}")):
            with pytest.raises(ApiError, match=r'403.*"nobody" cannot'):
                await client.request(method, NODES, body=body)
        with pytest.raises(ApiError, match=r'403.*"nobody" cannot'):
            async with client.stream(NODES, params={"watch": "1"}, read_timeout=PATIENCE):
                raise AssertionError


async def test_somebody_with_the_rights_of_a_group(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Groups are sent along."""
    connection = await acting(control_plane, tmp_path, **{"as": "nobody"}, as_groups=["a", "system:masters"])
    async with Client(connection=connection) as client:
        assert (await client.request("GET", NODES)).status == 200

"""
How server-side apply behaves, on any API server.
"""

from typing import Any

from tests.support.sandbox_api import Api

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


async def server_side_apply_removes_what_a_manager_leaves_out(api: Api) -> None:
    """Of maps and of lists with keys; what another manager has applied, or a patch has set, stays."""

    async def apply(path: str, manager: str, body: dict[str, Any]) -> dict[str, Any]:
        reply = await api.call("PATCH", path, body, query={"fieldManager": manager}, media_type=APPLY)
        assert reply.status in {200, 201}, reply
        return dict(reply.body)

    head = {"apiVersion": "v1", "kind": "ConfigMap"}
    created = await api.call(
        "PATCH",
        "configmaps/a",
        head | {"metadata": {"name": "a", "labels": {"x": "1"}}, "data": {"a": "1", "b": "2"}},
        query={"fieldManager": "one"},
        media_type=APPLY,
    )
    assert created.status == 201
    await apply("configmaps/a", "two", head | {"metadata": {"name": "a"}, "data": {"c": "3"}})
    await api.call("PATCH", "configmaps/a", {"data": {"d": "4"}}, media_type=MERGE)
    changed = await apply("configmaps/a", "one", head | {"metadata": {"name": "a"}, "data": {"a": "0"}})
    assert changed["data"] == {"a": "0", "c": "3", "d": "4"}
    assert "labels" not in changed["metadata"]

    def deployment(*names: str) -> dict[str, Any]:
        labels = {"app": "a"}
        containers = [{"name": name, "image": "registry.example/app:1"} for name in names]
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}

    await apply("apis/apps/v1/deployments/a", "one", deployment("x", "y"))
    left = await apply("apis/apps/v1/deployments/a", "one", deployment("y"))
    assert [container["name"] for container in left["spec"]["template"]["spec"]["containers"]] == ["y"]
    assert left["metadata"]["generation"] == 2

"""The containers meet the Pod Security Standard `restricted`, as the API server's own admission judges it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.control_plane.objects import pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import until
from tests.support import kustomize
from tests.support.helm import Helm, values

pytestmark = pytest.mark.control_plane  # the server, or the built helm and kubectl without one

ROADS = {
    "custom": (".", [], {}),
    "default": (
        "default-scheduler",
        [],
        {"scheduler__customScheduler__enabled": False, "scheduler__defaultScheduler__enabled": True},
    ),
    "both": (".", ["extender"], {"scheduler__defaultScheduler__enabled": True}),
}
EVERYWHERE = {"requireScheduler": "require-scheduler", "secureMetrics": "secure-metrics", "questions": "questions"}
WITH_KUBE_SCHEDULER = {"kops": "kops", "extenderTls": "extender-tls"}
RESTRICTED = "restricted"
PREFIX = "pod-security.kubernetes.io"


def variants() -> Iterator[tuple[str, str]]:
    """Yield each road with no component, and with all: what each one adds is in the second."""
    for road in ROADS:
        able = {**EVERYWHERE, **({} if road == "custom" else WITH_KUBE_SCHEDULER)}
        if road == "default":
            del able["questions"]  # the component is for the Deployment my-scheduler
        for chosen in ((), tuple(able)):
            yield road, "+".join(chosen)


def deployments(road: str, chosen: str, folder: Path) -> Iterator[Object]:
    """Yield the Deployments of a variant, as kustomize and the chart render them."""
    where, always, settings = ROADS[road]
    names = {**EVERYWHERE, **WITH_KUBE_SCHEDULER}
    components = [name for name in chosen.split("+") if name]
    switches: dict[str, Any] = {f"components__{name}": name in components for name in names}
    rendered = [
        kustomize.rendered(kustomize.customized(where, folder, *always, *(names[name] for name in components))),
        Helm(folder).rendered(*values(scheduler__enabled=True, npd__enabled=False, **settings, **switches)),
    ]
    for items in rendered:
        found = [item for item in items.values() if item["kind"] == "Deployment"]
        assert found
        yield from found


@pytest.fixture(scope="module")
async def restricted(installed: ControlPlane) -> RestClient:
    """Return the administrator's client, once the API server enforces `restricted` in a namespace of that name."""
    labels = {f"{PREFIX}/enforce": RESTRICTED, f"{PREFIX}/enforce-version": "latest"}
    await installed.admin.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RESTRICTED, "labels": labels}}
    )

    async def enforced() -> bool:
        return (await create(installed.admin, pod_manifest("plain", namespace=RESTRICTED)))[0] == 403

    await until(enforced)
    return installed.admin


async def create(api: RestClient, pod: Object) -> tuple[int, Object]:
    """Create a pod in that namespace in a dry run; return status and answer."""
    return await api.request("POST", f"/api/v1/namespaces/{RESTRICTED}/pods", pod, dryRun="All")


def pod_of(deployment: Object) -> Object:
    """Return the pod that a Deployment's ReplicaSet would create."""
    template = deployment["spec"]["template"]
    metadata = template["metadata"] | {"name": deployment["metadata"]["name"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


@pytest.mark.parametrize(("road", "chosen"), [*variants()])
async def test_every_variant_is_admitted(restricted: RestClient, tmp_path: Path, road: str, chosen: str) -> None:
    """By kustomize and by the chart, on each road, with each component; the pod keeps its node's network to itself."""
    for deployment in deployments(road, chosen, tmp_path):
        status, answer = await create(restricted, pod_of(deployment))
        assert (status, answer.get("message", "")) == (201, "")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hostNetwork": True}, "host namespaces"),
        ({"securityContext": {}}, "runAsNonRoot"),
        ({"volumes": [{"name": "config", "hostPath": {"path": "/"}}]}, "hostPath"),
    ],
)
async def test_a_weaker_pod_is_refused(
    restricted: RestClient, tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    """So the admission is what admits the others: it knows the standard's rules."""
    for deployment in deployments("custom", "", tmp_path):
        pod = pod_of(deployment)
        pod["spec"] |= change
        status, answer = await create(restricted, pod)
        assert status == 403
        assert complaint in answer["message"]


@pytest.mark.parametrize(("road", "chosen"), [*variants()])
def test_what_the_standard_does_not_ask_for(tmp_path: Path, road: str, chosen: str) -> None:
    """No writable root, no writable mount, requests and a limit of memory, and a token for this pod only."""
    for deployment in deployments(road, chosen, tmp_path):
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert "initContainers" not in spec
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert all(mount["readOnly"] for mount in container["volumeMounts"])
        assert all({"configMap", "secret"} & volume.keys() for volume in spec["volumes"])
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert container["resources"]["limits"].keys() == {"memory"}
        assert spec["automountServiceAccountToken"] is True
        assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & spec.keys()
        assert all("hostPort" not in port for port in container["ports"])


@pytest.mark.parametrize("road", [*ROADS])
def test_only_the_deployment_s_pods_get_the_token(tmp_path: Path, road: str) -> None:
    """A pod that names the ServiceAccount by mistake has no credentials; the Deployment asks for them."""
    where, always, settings = ROADS[road]
    for items in (
        kustomize.rendered(kustomize.customized(where, tmp_path, *always)),
        Helm(tmp_path).rendered(*values(scheduler__enabled=True, npd__enabled=False, **settings)),
    ):
        assert items["ServiceAccount/neuron-scheduler"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("road", [*ROADS])
def test_the_ports_are_closed_to_other_namespaces(tmp_path: Path, road: str) -> None:
    """The NetworkPolicy lists every port of the pod; only the extender's is open to all."""
    where, always, settings = ROADS[road]
    for items in (
        kustomize.rendered(kustomize.customized(where, tmp_path, *always, "secure-metrics")),
        Helm(tmp_path).rendered(
            *values(scheduler__enabled=True, npd__enabled=False, components__secureMetrics=True, **settings)
        ),
    ):
        (deployment,) = (item for item in items.values() if item["kind"] == "Deployment")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        ingress = items["NetworkPolicy/neuron-scheduler"]["spec"]["ingress"]
        guarded = {port["port"] for rule in ingress if rule.get("from") for port in rule["ports"]}
        open_to_all = {port["port"] for rule in ingress if not rule.get("from") for port in rule["ports"]}
        assert guarded == {10251, 10259}
        assert open_to_all == (set() if road == "custom" else {12345})
        assert {port["containerPort"] for port in container["ports"]} == guarded | open_to_all

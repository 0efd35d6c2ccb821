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

pytestmark = pytest.mark.control_plane  # the server, or kubectl without one

ROADS = {"custom": ("my-scheduler", []), "default": ("default-scheduler", []), "both": ("my-scheduler", ["extender"])}
EVERYWHERE = ("require-scheduler", "secure-metrics", "questions")
WITH_KUBE_SCHEDULER = ("kops", "extender-tls")
RESTRICTED = "restricted"
PREFIX = "pod-security.kubernetes.io"


def variants() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each road with no component, and with all: what each one adds is in the second."""
    for road in ROADS:
        able = EVERYWHERE if road == "custom" else (*EVERYWHERE, *WITH_KUBE_SCHEDULER)
        # The component `questions` is for the Deployment my-scheduler.
        yield from ((road, ()), (road, tuple(name for name in able if road != "default" or name != "questions")))


def installed_by(road: str, folder: Path, *components: str) -> dict[str, Object]:
    """Return the objects of a variant; `tests/test_chart.py` shows that the chart has the same."""
    where, always = ROADS[road]
    return kustomize.rendered(kustomize.customized(where, folder, *always, *components))


def deployment_of(items: dict[str, Object]) -> Object:
    """Return the only Deployment."""
    (deployment,) = (item for item in items.values() if item["kind"] == "Deployment")
    return deployment


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
async def test_every_variant_is_admitted(
    restricted: RestClient, tmp_path: Path, road: str, chosen: tuple[str, ...]
) -> None:
    """On each road, with each component; the pod keeps its node's network to itself."""
    status, answer = await create(restricted, pod_of(deployment_of(installed_by(road, tmp_path, *chosen))))
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
    pod = pod_of(deployment_of(installed_by("custom", tmp_path)))
    pod["spec"] |= change
    status, answer = await create(restricted, pod)
    assert status == 403
    assert complaint in answer["message"]


@pytest.mark.parametrize(("road", "chosen"), [*variants()])
def test_what_the_standard_does_not_ask_for(tmp_path: Path, road: str, chosen: tuple[str, ...]) -> None:
    """No writable root, no writable mount, requests and a limit of memory, and a token for this pod only."""
    items = installed_by(road, tmp_path, *chosen)
    spec = deployment_of(items)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert "initContainers" not in spec
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert all({"configMap", "secret"} & volume.keys() for volume in spec["volumes"])
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container["resources"]["limits"].keys() == {"memory"}
    assert spec["automountServiceAccountToken"] is True
    assert items["ServiceAccount/neuron-scheduler"]["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & spec.keys()
    assert all("hostPort" not in port for port in container["ports"])


@pytest.mark.parametrize("road", [*ROADS])
def test_the_ports_are_closed_to_other_namespaces(tmp_path: Path, road: str) -> None:
    """The NetworkPolicy lists every port of the pod; only the extender's is open to all."""
    items = installed_by(road, tmp_path, "secure-metrics")
    (container,) = deployment_of(items)["spec"]["template"]["spec"]["containers"]
    ingress = items["NetworkPolicy/neuron-scheduler"]["spec"]["ingress"]
    guarded = {port["port"] for rule in ingress if rule.get("from") for port in rule["ports"]}
    open_to_all = {port["port"] for rule in ingress if not rule.get("from") for port in rule["ports"]}
    assert guarded == {10251, 10259}
    assert open_to_all == (set() if road == "custom" else {12345})
    assert {port["containerPort"] for port in container["ports"]} == guarded | open_to_all

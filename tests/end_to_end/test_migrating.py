"""
From AWS's extension to this scheduler and back, with the commands of the pages eks, default-scheduler and migrating.

AWS's kube-scheduler is the real one, and its extension a model (`tests.support.aws_extension`); the Deployments of both
sides are run by `SystemKubelet`. Its own control plane, with controllers and a default scheduler.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import attrs
import pytest
import yaml

from tests.control_plane.binaries import require
from tests.control_plane.objects import bind, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import ApiError, Object, RestClient
from tests.control_plane.server import ControlPlane, free_port, run_control_plane
from tests.end_to_end.process import ACQUIRED, SYNCED, run_scheduler, until
from tests.end_to_end.system_kubelet import SystemKubelet
from tests.end_to_end.workload import LEASE, PODS, all_placed, clear, events_of, held_cores, ids_of, on, refused, remove
from tests.support import aws_release
from tests.support.aws_extension import AwsExtension, Belief
from tests.support.aws_release import write_chart, write_manifests
from tests.support.documented_commands import ROOT, Block, Shell, reader_shell, run_by

pytestmark = [pytest.mark.control_plane, pytest.mark.timeout(300)]

THIS: Final = "tests/end_to_end/test_migrating.py"
AWS_CHART: Final = "oci://public.ecr.aws/neuron/neuron-helm-chart"
OUR_ALLOCATION: Final = "neuron-scheduler/allocation"
TYPES: Final = {"inf1": "inf1.6xlarge", "inf2": "inf2.24xlarge", "trn1": "trn1.32xlarge"}
AWS_INSTALL: Final = """
helm upgrade --install neuron-helm-chart oci://public.ecr.aws/neuron/neuron-helm-chart \
    --set "scheduler.enabled=true" \
    --set "npd.enabled=false"
"""
AWS_INSTALL_DEFAULT: Final = """
helm upgrade --install neuron-helm-chart oci://public.ecr.aws/neuron/neuron-helm-chart \
    --set "scheduler.enabled=true" \
    --set "scheduler.customScheduler.enabled=false" \
    --set "scheduler.defaultScheduler.enabled=true" \
    --set "npd.enabled=false"
"""
RUNNING: Final = """
kubectl rollout status --namespace kube-system --timeout=60s deployment/my-scheduler
kubectl rollout status --namespace kube-system --timeout=60s deployment/k8s-neuron-scheduler
"""
IDENTITIES: Final = """
for folder in manifests/ manifests/lease-watch; do
    kubectl get -k "$folder" --output jsonpath='{range .items[*]}{.kind}/{.metadata.name} {.metadata.uid}{"\\n"}{end}'
done
"""
OUR_POLICIES: Final = (
    "kubectl get validatingadmissionpolicies --selector app.kubernetes.io/name=neuron-scheduler"
    " --output jsonpath='{.items[*].metadata.name}'"
)


class Site:
    """A cluster, the kubelets of its nodes, and its administrator's shell."""

    def __init__(self, plane: ControlPlane, kubelet: SystemKubelet, shell: Shell, chart: Path) -> None:
        self.plane, self.api, self.kubelet, self.shell, self.chart = plane, plane.admin, kubelet, shell, chart

    async def run(self, command: Block | str, *, code: int = 0) -> str:
        """Run a block of the page, or a command of AWS's documentation, with a chart that has the same objects."""
        block = command if isinstance(command, Block) else Block("AWS's documentation", 1, "", "", command)
        replaced = {AWS_CHART: str(self.chart), "timeout=5m": "timeout=60s", "REGISTRY": "registry.example"}
        return await self.shell.run(block, replaced=replaced, code=code)

    async def create(self, *manifests: Object) -> list[str]:
        """Create pods; return their names."""
        for manifest in manifests:
            await create_pod(self.api, manifest)
        return [manifest["metadata"]["name"] for manifest in manifests]

    async def bound(self, names: list[str]) -> dict[str, Object]:
        """Return all bound pods, once these run; no core is used twice."""
        await all_placed(self.api, names)
        wanted = {f"default/{name}" for name in names}
        pods = await self.api.wait_until(
            PODS, lambda pods: wanted <= {key for key, pod in pods.items() if pod["status"]["phase"] == "Running"}
        )
        bound = {pod["metadata"]["name"]: pod for pod in pods.values() if "nodeName" in pod["spec"]}
        held_cores(bound.values(), TYPES)
        return bound


@pytest.fixture(scope="module")
async def fenced_plane() -> AsyncIterator[ControlPlane]:
    """Run a control plane with controllers and a default scheduler that calls the Service of AWS's extension."""
    url = f"http://127.0.0.1:{free_port()}"
    configuration = {
        "extenders": [aws_release.my_scheduler_configuration(url)["extenders"][0] | {"nodeCacheCapable": True}]
    }
    async with run_control_plane(with_controller_manager=True, with_scheduler=configuration) as plane:
        yield plane


@asynccontextmanager
async def cluster(plane: ControlPlane, tmp_path: Path, road: str = "") -> AsyncIterator[Site]:
    """Yield a cluster with Neuron nodes and nothing else, and a reader, who has chosen the road that is named."""
    api = plane.admin
    kubeconfig = plane.kubeconfig(tmp_path / "kubeconfig")
    await cleared(api, kubeconfig)
    for name, instance_type in TYPES.items():
        await api.post("/api/v1/nodes", node_manifest(name, instance_type, labels={"kubernetes.io/os": "linux"}))
        # Whatever its version: a controller changes each new node too.
        await api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
    for folder in ("shell", "pods"):
        (tmp_path / folder).mkdir()
    shell = reader_shell(tmp_path / "shell", kubeconfig, road=road)
    write_manifests(shell.folder)
    configuration = json.loads((plane.folder / "scheduler.yaml").read_text())
    port = int(configuration["extenders"][0]["urlPrefix"].rpartition(":")[2])
    kubelet = SystemKubelet(api, plane=plane, folder=tmp_path / "pods", service_port=port)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kubelet.run)
        yield Site(plane, kubelet, shell, write_chart(tmp_path / "chart"))
        tasks.cancel_scope.cancel()


async def cleared(api: RestClient, kubeconfig: Path) -> None:
    """
    Delete what a test may have left, but nothing that the control plane itself needs.

    `lease-watch` stays, as the page says: without it the API server would see the Leases of the last test.
    """
    items = [
        *aws_release.everything(),
        *await kustomized("manifests/my-scheduler"),
        *await kustomized("manifests/default-scheduler"),
    ]
    delete = [str(require("kubectl")), f"--kubeconfig={kubeconfig}", "delete", "--ignore-not-found", "--wait=false"]
    await anyio.run_process(
        [*delete, "--filename=-"], input="---\n".join(f"{json.dumps(item)}\n" for item in items).encode()
    )
    await api.delete("/api/v1/namespaces/default/secrets", labelSelector="owner=helm")
    await api.delete("/api/v1/namespaces/kube-system/pods", gracePeriodSeconds=0)
    await clear(api)


async def kustomized(folder: str) -> list[Object]:
    """Return the objects of a kustomization."""
    done = await anyio.run_process([str(require("kubectl")), "kustomize", folder], cwd=ROOT)
    return list(yaml.safe_load_all(done.stdout))


def theirs() -> list[Object]:
    """Return the pods that AWS's scheduler places: cores, devices, and a block."""
    return [
        pod_manifest("nine-cores", neuroncore=9, **on("inf1.6xlarge")),
        pod_manifest("pair", neuron=2, **on("inf2.24xlarge")),
        pod_manifest("core", neuroncore=1, **on("inf2.24xlarge")),
        pod_manifest("row", neuron=4, **on("trn1.32xlarge")),
        pod_manifest("one", neuron=1, **on("trn1.32xlarge")),
    ]


def ours() -> list[Object]:
    """Return pods for what those leave free: they fit only if what is used is known exactly."""
    return [
        pod_manifest("device", neuron=1, **on("inf1.6xlarge")),
        pod_manifest("three", neuron=3, **on("inf2.24xlarge")),
        pod_manifest("eight", neuron=8, **on("trn1.32xlarge")),
    ]


def untouched(before: dict[str, Object], after: dict[str, Object]) -> bool:
    """Return whether these pods are the same objects, with the same node and devices."""
    return all(
        (pod["metadata"]["uid"], pod["spec"]["nodeName"], ids_of(pod))
        == (after[name]["metadata"]["uid"], after[name]["spec"]["nodeName"], ids_of(after[name]))
        for name, pod in before.items()
    )


async def test_over_and_back_by_helm(fenced_plane: ControlPlane, tmp_path: Path) -> None:
    """Running pods stay, waiting pods are served by the other side, and no device is given twice, both ways."""
    async with cluster(fenced_plane, tmp_path) as site:
        before, switch_off, *over = run_by(f"{THIS}::{test_over_and_back_by_helm.__name__}")
        install, installed, clean, *back = over
        stop, uninstall, write, switch_on, verify, restart = back
        site.kubelet.belief = Belief.MAPS_ELSE_FREE
        await site.run(AWS_INSTALL)
        await site.run(RUNNING)
        by_aws = await site.bound(await site.create(*theirs()))

        await site.run(before)
        assert "UP-TO-DATE" not in await site.run(with_its_version(switch_off)), "there is no Deployment in the table"
        waiting = await site.create(*ours())
        await site.run(install)
        by_both = await site.bound(waiting)
        assert untouched(by_aws, by_both)
        assert (await site.api.get(LEASE))["spec"]["holderIdentity"] in await site.run(installed)
        await site.run(clean)

        for block in (stop, uninstall):
            await site.run(block)
        waiting = await site.create(*late())
        assert "the usage maps of 3 differ" in await site.run(write)
        await site.run(with_its_version(switch_on))
        by_aws_again = await site.bound(waiting)
        assert untouched(by_both, by_aws_again)
        assert "the usage maps of 0 differ" in await site.run(verify)

        await remove(site.api, "eight")
        (extension,) = site.kubelet.extensions
        await extension.ended(by_aws_again["eight"])
        assert "the usage maps of 0 differ" in await site.run(verify)
        await site.bound(await site.create(pod_manifest("eight-again", neuron=8, **on("trn1.32xlarge"))))
        await site.run(restart)


async def test_over_and_back_by_manifests(fenced_plane: ControlPlane, tmp_path: Path) -> None:
    """The same with AWS's files, which have the same objects; README's way is refused, and installs nothing."""
    async with cluster(fenced_plane, tmp_path) as site:
        before, _, install, _, clean, *back = run_by(f"{THIS}::{test_over_and_back_by_helm.__name__}")
        stop, uninstall, write, *_ = back
        delete, again = run_by(f"{THIS}::{test_over_and_back_by_manifests.__name__}")
        site.kubelet.belief = Belief.PODS
        await site.run("kubectl apply --filename k8s-neuron-device-plugin.yml")
        await site.run("kubectl apply --filename my-scheduler.yml --filename k8s-neuron-scheduler-eks.yml")
        await site.run(RUNNING)
        by_aws = await site.bound(await site.create(*theirs()))
        (_, too_early, *_) = run_by("tests/end_to_end/test_readme.py::test_with_kubectl")
        assert "field is immutable" in await site.run(too_early, code=1)
        assert await site.run(OUR_POLICIES) == "neuron-scheduler-lease-watch"
        await site.run(before)
        await site.run(delete)
        waiting = await site.create(*ours())
        await site.run(install)
        by_both = await site.bound(waiting)
        await site.run(clean)
        assert untouched(by_aws, by_both)
        await site.run(stop)
        await site.run(uninstall)
        assert "the usage maps of 3 differ" in await site.run(write)
        waiting = await site.create(*late())
        await site.run(again)
        assert untouched(by_both, await site.bound(waiting))
        assert "the usage maps of 0 differ" in await site.run("neuron-scheduler usage-maps")


async def test_over_and_back_with_the_default_scheduler(fenced_plane: ControlPlane, tmp_path: Path) -> None:
    """kube-scheduler calls one extension or the other, and its pods need no scheduler's name."""
    off, install, clean, uninstall, on_again = run_by(
        f"{THIS}::{test_over_and_back_with_the_default_scheduler.__name__}"
    )
    async with cluster(fenced_plane, tmp_path, "default-scheduler") as site:
        site.kubelet.belief = Belief.PODS  # it has no right to write the maps
        await site.run(AWS_INSTALL_DEFAULT)
        extension = "kubectl rollout status --namespace kube-system --timeout=60s deployment/k8s-neuron-scheduler"
        await site.run(extension)
        by_aws = await site.bound(await site.create(*map(by_default, theirs())))
        await site.run(with_its_version(off))
        waiting = await site.create(*map(by_default, ours()))
        await site.run(install)
        by_both = await site.bound(waiting)
        assert untouched(by_aws, by_both)
        assert all(OUR_ALLOCATION in by_both[name]["metadata"]["annotations"] for name in waiting)
        await site.run(clean)
        await site.run(uninstall)
        waiting = await site.create(*map(by_default, late()))
        await site.run(with_its_version(on_again))
        await site.run(extension)
        assert untouched(by_both, await site.bound(waiting))


def with_its_version(block: Block) -> Block:
    """Return these commands, which then fail if VERSION is not that of AWS's chart: Helm needs none for a local one."""
    return attrs.evolve(block, text=f'{block.text}[ "$VERSION" = {aws_release.VERSION} ]\n')


def by_default(manifest: Object) -> Object:
    """Return a pod for the default scheduler."""
    return manifest | {"spec": manifest["spec"] | {"schedulerName": "default-scheduler"}}


@pytest.mark.parametrize("belief", Belief)
@pytest.mark.parametrize("written", [True, False], ids=["with the maps", "without them"])
async def test_the_maps_are_right_for_all_that_the_extension_may_do(
    fenced_plane: ControlPlane, tmp_path: Path, *, belief: Belief, written: bool
) -> None:
    """With right maps it cannot give our devices out again; without them it would, if it took a node for free."""
    async with cluster(fenced_plane, tmp_path) as site:
        pods = [pod_manifest("pair", neuron=2), pod_manifest("cores", neuroncore=3), pod_manifest("next", neuron=3)]
        await site.create(*pods)
        for name, ids in {"pair": "0,1", "cores": "4,5,6"}.items():
            await bind(site.api, await site.api.get(f"{PODS}/{name}"), "inf2", {"AWS_NEURON_IDS": ids})
        if written:
            await site.run("neuron-scheduler usage-maps | sh")
        uid = (await site.api.get(f"{PODS}/next"))["metadata"]["uid"]
        extension = AwsExtension(site.api, belief)
        overlaps = not written and belief is Belief.MAPS_ELSE_FREE
        if overlaps:
            await extension.bind("default", "next", uid, "inf2")
            with pytest.raises(AssertionError, match="another pod holds"):
                held_cores((await site.api.get(PODS))["items"], TYPES)
        else:
            with pytest.raises(ApiError, match="no consecutive ids are free"):
                await extension.bind("default", "next", uid, "inf2")


async def test_nothing_of_ours_goes_with_the_release_of_aws(fenced_plane: ControlPlane, tmp_path: Path) -> None:
    """Upgrades and the end of AWS's release change nothing; it cannot be switched on beside us."""
    async with cluster(fenced_plane, tmp_path) as site:
        before, switch_off, install, *_ = run_by(f"{THIS}::{test_over_and_back_by_helm.__name__}")
        await site.run(AWS_INSTALL)
        await site.run(before)
        await site.run(switch_off)
        await site.run(install)
        upgrade = "\n".join(line for line in switch_off.text.splitlines() if not line.startswith("kubectl "))
        ours_now = await site.run(IDENTITIES)
        assert len(ours_now.splitlines()) > 15
        await site.run(upgrade)
        refusal = await site.run(AWS_INSTALL, code=1)
        assert "my-scheduler" in refusal
        assert "invalid ownership metadata" in refusal
        assert await site.run(IDENTITIES) == ours_now
        await site.run("helm uninstall neuron-helm-chart --wait")
        assert await site.run(IDENTITIES) == ours_now
        await site.bound(await site.create(*ours()))


async def test_over_from_a_second_kube_scheduler(fenced_plane: ControlPlane, tmp_path: Path) -> None:
    """Its pods have no ids: they run on, are listed, and no device is given twice; then ours get what is certain."""
    async with cluster(fenced_plane, tmp_path) as site:
        before = run_by(f"{THIS}::{test_over_and_back_by_helm.__name__}")[0]
        delete, install, unknown = run_by(f"{THIS}::{test_over_from_a_second_kube_scheduler.__name__}")
        await site.run(before)
        await site.run("kubectl apply --filename my-scheduler.yml")
        plain = aws_release.my_scheduler_configuration() | {"extenders": [], "leaderElection": {"leaderElect": False}}
        data = {"data": {"my-scheduler-config.yaml": json.dumps(plain)}}
        await site.api.patch("/api/v1/namespaces/kube-system/configmaps/my-scheduler-config", data)
        await site.run("kubectl rollout restart --namespace kube-system deployment/my-scheduler")
        await site.run("kubectl rollout status --namespace kube-system --timeout=60s deployment/my-scheduler")
        names = await site.create(
            pod_manifest("whole", neuron=4, **on("inf1.6xlarge")),
            pod_manifest("single", neuron=1, **on("inf2.24xlarge")),
        )
        await all_placed(site.api, names)
        await site.run(delete)
        waiting = await site.create(
            pod_manifest("pair", neuron=2, **on("inf2.24xlarge")),
            pod_manifest("row", neuron=4, **on("trn1.32xlarge")),
        )
        await site.run(install)
        row = (await all_placed(site.api, ["row"]))["row"]
        assert ids_of(row) == (0, 1, 2, 3)
        message = (await refused(site.api, waiting[0]))["message"]
        assert "1 node(s) had a pod with an unknown Neuron allocation" in message
        await events_of(site.api, "single", "NeuronAllocationUnknown")
        listed = await site.run(unknown)
        assert "pod/single" in listed
        assert "pod/whole" not in listed


async def test_only_one_of_both_schedules(fenced_plane: ControlPlane, tmp_path: Path) -> None:
    """
    Ours waits while AWS's kube-scheduler holds the Lease, and takes over, with the waiting pods, when that is stopped.

    Our policies come first: they refuse what AWS's extension writes, so none of its Bindings can come after our list of
    the pods.
    """
    async with cluster(fenced_plane, tmp_path) as site:
        await site.run("kubectl apply --filename my-scheduler.yml --filename k8s-neuron-scheduler-eks.yml")
        await site.run(RUNNING)
        await site.run(
            "kubectl apply --filename manifests/base/service_account.yaml --filename manifests/base/rbac.yaml"
        )
        token = await site.plane.token_for("kube-system", "neuron-scheduler")
        async with run_scheduler(site.plane.kubeconfig(tmp_path / "ours", token=token)) as scheduler:
            await scheduler.line(SYNCED)
            by_aws = await site.bound(await site.create(*theirs()))
            assert not [pod for pod in by_aws.values() if OUR_ALLOCATION in pod["metadata"]["annotations"]]
            assert not scheduler.lines_with(ACQUIRED)
            await site.run("kubectl apply -k manifests/lease-watch")
            await site.run("kubectl apply --filename manifests/base/admission_annotations.yaml")
            await until(partial(refuses_allocations, site.api))
            waiting = await site.create(*ours(), *late())
            await site.run("kubectl scale --namespace kube-system deployment/my-scheduler --replicas=0")
            await scheduler.line(ACQUIRED)
            by_both = await site.bound(waiting)
            assert untouched(by_aws, by_both)
            assert all(OUR_ALLOCATION in by_both[name]["metadata"]["annotations"] for name in waiting)
            await site.run("kubectl scale --namespace kube-system deployment/my-scheduler --replicas=1")
            await site.run("kubectl rollout status --namespace kube-system --timeout=60s deployment/my-scheduler")
            last = await site.bound(await site.create(pod_manifest("last", neuron=1, **on("trn1.32xlarge"))))
            assert OUR_ALLOCATION in last["last"]["metadata"]["annotations"]
            assert await scheduler.stop() == 0


async def refuses_allocations(api: RestClient) -> bool:
    """Return whether the API server applies the policy on annotations."""
    forged = pod_manifest("forged", annotations={"AWS_NEURON_IDS": "0"})
    return (await api.request("POST", PODS, forged, dryRun="All"))[0] == 403


def late() -> list[Object]:
    """Return pods that fit beside all others only if these are known."""
    return [
        pod_manifest("late-device", neuron=1, **on("trn1.32xlarge")),
        pod_manifest("late-cores", neuroncore=3, **on("inf1.6xlarge")),
    ]

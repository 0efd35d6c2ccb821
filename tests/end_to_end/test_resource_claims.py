"""Pods with claims on devices, on a real API server with its controllers and a stand-in for kubelets."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from tests.control_plane.binaries import RELEASE
from tests.control_plane.fake_kubelet import FakeKubelet
from tests.control_plane.objects import create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import MERGE, Object, RestClient
from tests.control_plane.server import ControlPlane, running_controllers
from tests.end_to_end.process import ACQUIRED, ROOT, SHORT_LEASE, SchedulerProcess, run_scheduler
from tests.end_to_end.workload import LEASE, PODS, add_priority_classes, condition_of, placed, refused
from tests.faults.calls import request_for
from tests.faults.proxy import ALWAYS, HELD, Fault, run_proxy
from tests.support.device_objects import DRIVER, devices, neuron_class, neuron_slice, template

GROUP = "/apis/resource.k8s.io/v1"
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"
TEMPLATES = f"{GROUP}/namespaces/default/resourceclaimtemplates"


def claiming(name: str, of: str, **fields: Any) -> Object:
    claim = {"name": "neurons", "resourceClaimTemplateName": of}
    return pod_manifest(name, resourceClaims=[claim], **fields)


@pytest.fixture(scope="module")
async def controllers(plane: ControlPlane) -> AsyncIterator[None]:
    async with running_controllers(plane), anyio.create_task_group() as tasks:
        tasks.start_soon(FakeKubelet(plane.admin).run)
        yield
        tasks.cancel_scope.cancel()


async def grant(api: RestClient, account: str = "neuron-scheduler") -> None:
    """Give a ServiceAccount the rights of the component."""
    for item in yaml.safe_load_all((ROOT / "manifests" / "components" / "claims" / "rbac.yaml").read_text()):
        for subject in item.get("subjects", ()):
            subject["name"] = account
        await api.apply(item)


@pytest.fixture
async def fleet(empty: RestClient, controllers: None) -> RestClient:
    """Return the client of a cluster with the class, AWS's templates, and two nodes of 16 devices."""
    await grant(empty)
    for collection in (
        "deviceclasses",
        "resourceslices",
        "namespaces/default/resourceclaimtemplates",
        "namespaces/default/resourceclaims",
    ):
        for item in (await empty.get(f"{GROUP}/{collection}"))["items"]:
            path = f"{GROUP}/{collection}/{item['metadata']['name']}"
            await empty.request("DELETE", path)  # it may be gone by now
            # A claim whose leader was killed keeps its devices.
            await empty.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
    await empty.post(f"{GROUP}/deviceclasses", neuron_class())
    for node in ("a", "b"):
        await create_node(empty, node_manifest(node, "m5.large", cpu=64))
        await empty.post(f"{GROUP}/resourceslices", neuron_slice(node))
    for name, spec in {"one": devices(1), "four": devices(4, 4), "eight": devices(8, 8), "xl": devices(16)}.items():
        await empty.post(TEMPLATES, template(name, spec))
    return empty


@pytest.fixture
async def claiming_scheduler(fleet: RestClient, account: Path) -> AsyncIterator[SchedulerProcess]:
    """Run a scheduler with claims; it must end without an error."""
    async with run_scheduler(account, "--claims", "-v=4") as scheduler:
        await scheduler.line(ACQUIRED)
        yield scheduler
        assert "Traceback" not in scheduler.log
        assert await scheduler.stop() == 0


async def claim_of(api: RestClient, pod: Object) -> Object:
    """Return the claim that was made for a pod."""
    name = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    return await api.get(f"{CLAIMS}/{name}")


async def given(api: RestClient, name: str) -> tuple[str, set[int]]:
    """Wait for a pod's node, and return it with the numbers of the devices; the claim is as the kubelet needs it."""
    pod = await placed(api, name)
    claim = await claim_of(api, pod)
    allocation, node = claim["status"]["allocation"], pod["spec"]["nodeName"]
    assert claim["status"]["reservedFor"] == [{"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}]
    assert "resource.kubernetes.io/delete-protection" in claim["metadata"]["finalizers"]
    (term,) = allocation["nodeSelector"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    results = allocation["devices"]["results"]
    assert {(each["request"], each["driver"], each["pool"]) for each in results} == {("neurons", DRIVER, node)}
    return node, {int(each["device"].rpartition("-")[2]) for each in results}


async def test_devices_are_given_by_blocks(fleet: RestClient, claiming_scheduler: SchedulerProcess) -> None:
    """One node is filled, so the other one stays whole for AWS's largest template; ended pods give theirs back."""
    for number in range(4):
        await create_pod(fleet, claiming(f"one-{number}", "one"))
    for name in ("four", "eight", "xl"):
        await create_pod(fleet, claiming(name, name))
    got = {name: await given(fleet, name) for name in (*(f"one-{n}" for n in range(4)), "four", "eight", "xl")}
    assert got["xl"][1] == {*range(16)}
    small = [ids for name, (node, ids) in got.items() if name != "xl" and node != got["xl"][0]]
    assert sorted(map(len, small)) == [1, 1, 1, 1, 4, 8]
    assert set[int]().union(*small) == {*range(16)}
    await create_pod(fleet, claiming("later", "eight"))
    await refused(fleet, "later", saying="Insufficient neuron.aws.com")
    await fleet.delete(f"{PODS}/xl")
    assert await given(fleet, "later") == (got["xl"][0], {*range(8)})


async def test_a_claim_that_is_missing_is_said_and_awaited(
    fleet: RestClient, claiming_scheduler: SchedulerProcess
) -> None:
    """The pod is bound as soon as the claim exists."""
    reference = {"name": "neurons", "resourceClaimName": "mine"}
    await create_pod(fleet, pod_manifest("p", resourceClaims=[reference]))
    await fleet.wait_for(f"{PODS}/p", lambda pod: condition_of(pod).get("reason") == "WaitingForResourceClaim")
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "mine"}}
    await fleet.post(CLAIMS, claim | {"spec": devices(4, 4)})
    await placed(fleet, "p")
    await create_pod(fleet, pod_manifest("q", resourceClaims=[reference]))  # it shares the devices
    nodes = {(await placed(fleet, name))["spec"]["nodeName"] for name in "pq"}
    assert len(nodes) == 1
    assert len((await fleet.get(f"{CLAIMS}/mine"))["status"]["reservedFor"]) == 2


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        pytest.param(
            {"devices": {"requests": [{"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": DRIVER}]}]}},
            'request "r": firstAvailable is not served by this scheduler',
            id="an alternative",
        ),
        pytest.param(devices(17), "Insufficient neuron.aws.com", id="more than any node has"),
    ],
)
async def test_what_is_not_served_is_said(
    fleet: RestClient, claiming_scheduler: SchedulerProcess, spec: Object, sentence: str
) -> None:
    """Nothing is allocated."""
    await fleet.post(TEMPLATES, template("odd", spec))
    await create_pod(fleet, claiming("odd", "odd"))
    await refused(fleet, "odd", saying=sentence)
    assert "allocation" not in (await claim_of(fleet, await fleet.get(f"{PODS}/odd"))).get("status", {})


@pytest.mark.skipif(RELEASE in ("1.34", "1.35"), reason="the API server drops taints of devices")
async def test_a_tainted_device_is_not_given(fleet: RestClient, claiming_scheduler: SchedulerProcess) -> None:
    """A request that tolerates the taint gets it; one for all devices of a node does not fit there."""
    for node in ("a", "b"):
        tainted = neuron_slice(node)
        tainted["spec"]["pool"]["generation"] = 2
        tainted["spec"]["devices"][0]["taints"] = [{"key": "example.com/sick", "effect": "NoSchedule"}]
        stored = await fleet.get(f"{GROUP}/resourceslices/{node}")
        stored["spec"] = tainted["spec"]
        await fleet.put(f"{GROUP}/resourceslices/{node}", stored)
    await create_pod(fleet, claiming("xl", "xl"))
    await refused(fleet, "xl", saying="example.com/sick")
    await fleet.post(TEMPLATES, template("any", devices(16, tolerations=[{"operator": "Exists"}])))
    await create_pod(fleet, claiming("tolerant", "any"))
    assert (await given(fleet, "tolerant"))[1] == {*range(16)}


async def test_room_is_made_for_claims(fleet: RestClient, claiming_scheduler: SchedulerProcess) -> None:
    """One pod goes, and its devices are free when its claim is."""
    await add_priority_classes(fleet, low=10, high=100)
    for name, template_name in (("large", "xl"), ("small", "eight")):
        await create_pod(fleet, claiming(name, template_name, priorityClassName="low"))
        await given(fleet, name)
    await create_pod(fleet, claiming("half", "eight", priorityClassName="low"))
    await given(fleet, "half")
    await create_pod(fleet, claiming("urgent", "eight", priorityClassName="high"))
    assert len((await given(fleet, "urgent"))[1]) == 8
    left = {pod["metadata"]["name"] for pod in (await fleet.get(PODS))["items"]}
    assert len(left) == 3


async def test_a_group_with_claims_starts_whole_or_not_at_all(
    fleet: RestClient, claiming_scheduler: SchedulerProcess
) -> None:
    """Two whole nodes for three members: no claim is written."""
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": "train",
        "pod-group.scheduling.sigs.k8s.io/min-available": "3",
    }
    for number in range(3):
        await create_pod(fleet, claiming(f"train-{number}", "xl", labels=labels))
    await refused(fleet, "train-0", saying="needs room for 3 pods at once; 2 fit")
    for claim in (await fleet.get(CLAIMS))["items"]:
        assert "allocation" not in claim.get("status", {})
    await create_node(fleet, node_manifest("c", "m5.large", cpu=64))
    await fleet.post(f"{GROUP}/resourceslices", neuron_slice("c"))
    assert {(await given(fleet, f"train-{number}"))[0] for number in range(3)} == {"a", "b", "c"}


async def test_two_schedulers_that_write_at_once_give_no_device_twice(fleet: RestClient, account: Path) -> None:
    """Neither knows of the other; the later writer takes back, and all pods are bound in the end."""
    flags = ("--claims", "--leader-elect=false", "--allocate-fence=false")
    names = [f"p-{number}" for number in range(32)]
    async with (
        run_scheduler(account, *flags, "--scheduler-name=first") as first,
        run_scheduler(account, *flags, "--scheduler-name=second") as second,
    ):
        for scheduler in (first, second):
            await scheduler.line("Starting to schedule pods")
        for scheduler in (first, second):
            scheduler.send_signal(signal.SIGSTOP)
        for number, name in enumerate(names):
            await create_pod(fleet, claiming(name, "one", scheduler_name=("first", "second")[number % 2]))
        await fleet.wait_until(PODS, lambda pods: all("resourceClaimStatuses" in p["status"] for p in pods.values()))
        for scheduler in (first, second):
            scheduler.send_signal(signal.SIGCONT)
        got = [(node, number) for name in names for node, ids in [await given(fleet, name)] for number in ids]
        assert len({*got}) == len(names)
        assert await first.stop() == await second.stop() == 0


@pytest.mark.parametrize("resource", ["resourceclaims", "resourceclaims/status", "pods/binding"])
async def test_a_leader_that_is_killed_between_its_writes(
    plane: ControlPlane, fleet: RestClient, account: Path, resource: str
) -> None:
    """The next one binds the pod, with the devices that its claim has got."""
    method = "POST" if resource == "pods/binding" else "PATCH"
    mine = f"mine-{resource.replace('/', '-')}"  # one that is deleted stays a while
    subject = "p" if resource == "pods/binding" else mine
    held = Fault(request_for(method, resource, subject), HELD, times=ALWAYS)
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": mine}}
    await fleet.post(CLAIMS, claim | {"spec": devices(4, 4)})
    async with run_proxy(plane) as proxy:
        proxy.add(held)
        async with run_scheduler(account, f"--master={proxy.url}", "--claims", *SHORT_LEASE) as leader:
            await leader.line(ACQUIRED)
            reference = {"name": "neurons", "resourceClaimName": mine}
            await create_pod(fleet, pod_manifest("p", resourceClaims=[reference]))
            await held.taken.wait()
            before = (await fleet.get(f"{CLAIMS}/{mine}")).get("status", {})
            await leader.kill()
    await fleet.request("DELETE", LEASE)
    async with run_scheduler(account, "--claims") as successor:
        await placed(fleet, "p")
        after = (await fleet.get(f"{CLAIMS}/{mine}"))["status"]
        assert before.get("allocation") in (None, after["allocation"])
        assert [user["name"] for user in after["reservedFor"]] == ["p"]
        assert await successor.stop() == 0

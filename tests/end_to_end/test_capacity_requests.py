"""Asking an autoscaler for machines, on a real API server; the test adds the nodes that an autoscaler would add."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.control_plane.objects import create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end import rights
from tests.end_to_end.asking import CAPACITY, PLACEHOLDERS, asking, fragment, grant_capacity, none_left, placeholders
from tests.end_to_end.process import ACQUIRED, SHORT_LEASE, run_scheduler, until
from tests.end_to_end.workload import PODS, clear, condition_of, events_of, ids_of, placed, refused, remove

NO_KUBELET: Final = "--allocate-fence=false"
"""Nothing admits pods here, so no Binding may wait for the pod before it."""
ASKED: Final = "Asked the autoscaler for 1 trn1.32xlarge"


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of this API server's audit log of the ServiceAccount."""
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
async def plane(audit_log: Path) -> AsyncIterator[ControlPlane]:
    """Run an API server on which the ServiceAccount may also ask for machines."""
    async with run_control_plane(api_server_flags=rights.audit_flags(audit_log)) as plane:
        await rights.grant(plane.admin)
        await grant_capacity(plane.admin)
        yield plane


@pytest.fixture(scope="module")
async def account(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a kubeconfig of the ServiceAccount."""
    token = await plane.token_for("kube-system", "neuron-scheduler")
    return plane.kubeconfig(tmp_path_factory.mktemp("account") / "kubeconfig", token=token)


@pytest.fixture
async def empty(plane: ControlPlane) -> RestClient:
    """Return the administrator's client of a cluster without pods, nodes and placeholders."""
    await clear(plane.admin)
    await plane.admin.delete(PLACEHOLDERS, gracePeriodSeconds=0)
    return plane.admin


def deeds(log: Path) -> list[tuple[str, str]]:
    """Return what was deleted and bound, in the order of the answers: verb and namespace."""
    return [
        (request["verb"], request["objectRef"]["namespace"])
        for request in rights.audited(log)
        if (request["verb"], request["objectRef"].get("subresource")) in (("delete", None), ("create", "binding"))
        and request["objectRef"].get("resource") == "pods"
        and request["responseStatus"]["code"] < 300
    ]


async def test_a_machine_is_asked_for_and_the_pod_gets_it(
    empty: RestClient, account: Path, tmp_path: Path, audit_log: Path
) -> None:
    """The placeholder asks for a whole machine; it is deleted before the pod is bound to the node that joins."""
    async with asking(account, tmp_path, NO_KUBELET) as scheduler:
        await scheduler.line(ACQUIRED)
        await fragment(empty, "a", "b")
        await refused(empty, "four", neuron=4)
        (placeholder,) = await placeholders(empty, 1)
        assert condition_of(placeholder)["reason"] == "Unschedulable"
        assert [condition["type"] for condition in placeholder["status"]["conditions"]] == ["PodScheduled"]
        limits = placeholder["spec"]["containers"][0]["resources"]["limits"]
        assert limits["aws.amazon.com/neuron"] == "16"
        assert placeholder["spec"]["priority"] == -10
        (event,) = await events_of(empty, "four", "NeuronCapacityRequested")
        assert event["note"] == f"{ASKED}: 24 Neuron devices free on 2 nodes, largest free block 1, pod needs 4"
        await refused(empty, "four", saying=f" {ASKED}.")
        metrics = await scheduler.until(
            lambda metrics: metrics['neuron_scheduler_capacity_requests{state="open"}'] == 1
        )
        assert metrics['neuron_scheduler_capacity_requests{state="refused"}'] == 0
        before = len(deeds(audit_log))
        await create_node(empty, node_manifest("c"))
        four = await placed(empty, "four")
        assert (four["spec"]["nodeName"], len(ids_of(four))) == ("c", 4)
        await none_left(empty)
        await scheduler.until(
            lambda metrics: metrics.get('neuron_scheduler_capacity_requests_ended_total{outcome="served"}') == 1
        )
        assert await scheduler.stop() == 0
    assert deeds(audit_log)[before:] == [
        ("delete", "neuron-scheduler-capacity"),
        ("create", "default"),
    ]


async def test_what_the_pod_needs_beside_neuron(empty: RestClient, account: Path, tmp_path: Path) -> None:
    """
    The placeholder asks for it as well: network interfaces for EFA are only on a machine that was bought with them.

    It has a finalizer that somebody has added: when it is deleted, it asks for nothing any more.
    """
    amounts = {"vpc.amazonaws.com/efa": "2", "hugepages-2Mi": "1Gi", "memory": "2Gi", "ephemeral-storage": "1Gi"}
    async with asking(account, tmp_path, NO_KUBELET) as scheduler:
        await scheduler.line(ACQUIRED)
        await fragment(empty, "a")
        offered = {"vpc.amazonaws.com/efa": "8", "hugepages-2Mi": "8Gi"}
        await empty.patch("/api/v1/nodes/a/status", {"status": {"capacity": offered, "allocatable": offered}})
        pod = pod_manifest("four", neuron=4)
        pod["spec"]["containers"][0]["resources"]["limits"] |= amounts
        await create_pod(empty, pod)
        (placeholder,) = await placeholders(empty, 1)
        asked = placeholder["spec"]["containers"][0]["resources"]["requests"]
        assert {name: asked[name] for name in amounts} == amounts
        path = f"{PLACEHOLDERS}/{placeholder['metadata']['name']}"
        await empty.patch(path, {"metadata": {"finalizers": ["example.com/kept"]}})
        await remove(empty, "four")
        kept = await empty.wait_for(path, lambda pod: condition_of(pod).get("reason") == "SchedulerError")
        assert kept["metadata"]["deletionTimestamp"]
        await empty.patch(path, {"metadata": {"finalizers": None}})
        await none_left(empty)
        assert await scheduler.stop() == 0


async def test_a_pod_that_goes_takes_its_placeholder_along(empty: RestClient, account: Path, tmp_path: Path) -> None:
    """The request is withdrawn as soon as its last pod is deleted."""
    async with asking(account, tmp_path, NO_KUBELET) as scheduler:
        await scheduler.line(ACQUIRED)
        await fragment(empty, "a")
        await refused(empty, "four", neuron=4)
        await placeholders(empty, 1)
        await remove(empty, "four")
        await none_left(empty)
        await scheduler.until(
            lambda metrics: metrics.get('neuron_scheduler_capacity_requests_ended_total{outcome="withdrawn"}') == 1
        )
        assert await scheduler.stop() == 0


async def test_a_pod_that_is_served_otherwise(
    empty: RestClient, account: Path, tmp_path: Path, audit_log: Path
) -> None:
    """A block becomes free: the placeholder is deleted before the pod is bound there."""
    async with asking(account, tmp_path, NO_KUBELET) as scheduler:
        await scheduler.line(ACQUIRED)
        await fragment(empty, "a")
        await refused(empty, "four", neuron=4)
        await placeholders(empty, 1)
        before = len(deeds(audit_log))
        await remove(empty, "a-0")
        four = await placed(empty, "four")
        assert four["spec"]["nodeName"] == "a"
        await none_left(empty)
        assert await scheduler.stop() == 0
    assert deeds(audit_log)[before:] == [
        ("delete", "neuron-scheduler-capacity"),
        ("create", "default"),
    ]


async def test_eight_pods_need_two_machines(empty: RestClient, account: Path, tmp_path: Path) -> None:
    """One placeholder for each machine that the pods need together, not one for each pod."""
    async with asking(account, tmp_path, NO_KUBELET, wait="2s") as scheduler:
        await scheduler.line(ACQUIRED)
        await fragment(empty, "a", "b", "c")
        for number in range(8):
            await create_pod(empty, pod_manifest(f"four-{number}", neuron=4))
        await placeholders(empty, 2)
        await create_node(empty, node_manifest("d"))
        await placeholders(empty, 1)
        await create_node(empty, node_manifest("e"))
        bound = {(await placed(empty, f"four-{number}"))["spec"]["nodeName"] for number in range(8)}
        assert bound == {"d", "e"}
        await none_left(empty)
        assert await scheduler.stop() == 0


@pytest.mark.parametrize("waits", [True, False], ids=["its pod waits", "its pod is gone"])
async def test_a_leader_that_was_killed(empty: RestClient, account: Path, tmp_path: Path, *, waits: bool) -> None:
    """The next leader goes on with the placeholder that it finds, or removes it."""
    async with asking(account, tmp_path, NO_KUBELET) as first:
        await first.line(ACQUIRED)
        await fragment(empty, "a")
        await refused(empty, "four", neuron=4)
        (placeholder,) = await placeholders(empty, 1)
        await first.kill()
    if not waits:
        await remove(empty, "four")
    async with asking(account, tmp_path, NO_KUBELET) as second:
        await second.line("Took over a request for a machine")
        if waits:
            await second.until(lambda metrics: metrics['neuron_scheduler_capacity_requests{state="open"}'] == 1)
            await create_node(empty, node_manifest("c"))
            assert (await placed(empty, "four"))["spec"]["nodeName"] == "c"
            assert second.lines_with("Asked the autoscaler for a machine") == []
        await none_left(empty)
        assert placeholder["metadata"]["name"].startswith("capacity-")
        assert await second.stop() == 0


def _is_it(before: Object, pod: Object) -> bool:
    return bool(pod["metadata"]["uid"] == before["metadata"]["uid"])


async def test_a_placeholder_that_was_bound_while_nobody_led(empty: RestClient, account: Path, tmp_path: Path) -> None:
    """It would hold a machine for ever: the next leader deletes it, and asks for the pod's machine again."""
    async with asking(account, tmp_path, NO_KUBELET) as first:
        await first.line(ACQUIRED)
        await fragment(empty, "a")
        await refused(empty, "four", neuron=4)
        (placeholder,) = await placeholders(empty, 1)
        await first.kill()
    name = placeholder["metadata"]["name"]
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "a"}}
    await empty.post(f"{PLACEHOLDERS}/{name}/binding", {"apiVersion": "v1", "kind": "Binding", **binding})
    async with asking(account, tmp_path, NO_KUBELET) as second:
        await second.line("A placeholder was bound to a node, deleting it", 'node="a"')
        await second.line("Asked the autoscaler for a machine")
        await empty.wait_until(
            PLACEHOLDERS, lambda pods: [_is_it(placeholder, pod) for pod in pods.values()] == [False]
        )
        assert await second.stop() == 0


async def test_a_placeholder_of_a_profile_that_asks_no_more(empty: RestClient, account: Path, tmp_path: Path) -> None:
    """A scheduler without capacity requests removes what an earlier one of its name has left, and asks for nothing."""
    async with asking(account, tmp_path, NO_KUBELET) as first:
        await first.line(ACQUIRED)
        await fragment(empty, "a")
        await refused(empty, "four", neuron=4)
        await placeholders(empty, 1)
        await first.kill()
    async with run_scheduler(account, *SHORT_LEASE) as second:
        await second.line(ACQUIRED)
        await none_left(empty)
        await refused(empty, "five", neuron=8)
        assert not (await empty.get(PLACEHOLDERS))["items"]
        assert not [name for name in await second.metrics() if name.startswith("neuron_scheduler_capacity_requests{")]
        assert await second.stop() == 0


async def test_a_limit(empty: RestClient, account: Path, tmp_path: Path) -> None:
    """With one machine at once, the second is asked for when the first serves; an Event says why not before."""
    async with asking(account, tmp_path, NO_KUBELET, wait="2s", maxMachines=1) as scheduler:
        await scheduler.line(ACQUIRED)
        await fragment(empty, "a", "b", "c")
        for number in range(8):
            await create_pod(empty, pod_manifest(f"four-{number}", neuron=4))
        await placeholders(empty, 1)
        await scheduler.until(lambda metrics: metrics['neuron_scheduler_capacity_requests{state="limited"}'] == 1)
        await scheduler.line("A limit keeps a machine from being asked for", "the limit maxMachines (1) is reached")
        assert len((await empty.get(PLACEHOLDERS))["items"]) == 1
        await create_node(empty, node_manifest("d"))
        await scheduler.line("Asked the autoscaler for a machine", count=2)
        await placeholders(empty, 1)
        await create_node(empty, node_manifest("e"))
        for number in range(8):
            await placed(empty, f"four-{number}")
        await none_left(empty)
        assert await scheduler.stop() == 0


async def test_a_machine_that_never_comes(empty: RestClient, account: Path, tmp_path: Path) -> None:
    """It is given up with an Event, and the pod's next one is asked for later."""
    async with asking(account, tmp_path, NO_KUBELET, giveUp="2s") as scheduler:
        await scheduler.line(ACQUIRED)
        await fragment(empty, "a")
        await refused(empty, "four", neuron=4)
        await placeholders(empty, 1)
        (event,) = await events_of(empty, "four", "NeuronCapacityGivenUp")
        assert event["note"] == (
            "Gave up the trn1.32xlarge that the autoscaler was asked for: it has not served its pods within 2s: no node"
            " has joined for it"
        )
        await scheduler.line("Asked the autoscaler for a machine", count=2)
        assert await scheduler.stop() == 0


async def test_an_autoscaler_that_takes_the_machine_away(empty: RestClient, account: Path, tmp_path: Path) -> None:
    """The pod has Karpenter's annotation; if its node is removed all the same, no further machine is asked for."""
    async with asking(account, tmp_path, NO_KUBELET, doNotDisrupt="true") as scheduler:
        await scheduler.line(ACQUIRED)
        await fragment(empty, "a", "b")
        await refused(empty, "four", neuron=4)
        await placeholders(empty, 1)
        node = await create_node(empty, node_manifest("c"))
        four = await placed(empty, "four")
        assert four["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
        taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        await empty.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"taints": [taint]}})
        await scheduler.line("The autoscaler removes a machine that it was asked for", 'node="c"')
        await remove(empty, "four")
        await refused(empty, "again", neuron=4)
        (event,) = await events_of(empty, "again", "NeuronCapacityLimited")
        assert "the autoscaler removes node c again" in event["note"]
        assert "consolidationPolicy: WhenEmpty" in event["note"]
        assert not (await empty.get(PLACEHOLDERS))["items"]
        assert await scheduler.stop() == 0


async def test_a_machine_that_is_too_small(empty: RestClient, account: Path, tmp_path: Path) -> None:
    """A node joins that has fewer devices than the pod needs: the placeholder goes, and later an Event comes."""
    async with asking(account, tmp_path, NO_KUBELET, giveUp="3s") as scheduler:
        await scheduler.line(ACQUIRED)
        await fragment(empty, "a")
        await refused(empty, "four", neuron=4)
        await placeholders(empty, 1)
        await create_node(empty, node_manifest("c", neuron=2, neuroncore=4))
        await none_left(empty)
        (event,) = await events_of(empty, "four", "NeuronCapacityGivenUp")
        assert event["note"].endswith("within 3s: node c has joined for it")
        assert await scheduler.stop() == 0


DENYING: Final = [
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-placeholders"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods", "configmaps"],
                    }
                ]
            },
            "validations": [
                {"expression": "request.namespace != 'neuron-scheduler-capacity'", "message": "no placeholders here"}
            ],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-placeholders"},
        "spec": {"policyName": "no-placeholders", "validationActions": ["Deny"]},
    },
]


async def _denies(api: RestClient) -> bool:
    """Return whether the policy is in force, for an object that no other rule refuses."""
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}}
    answer = (await api.request("POST", f"{CAPACITY}/configmaps", probe, dryRun="All"))[1]
    return "no placeholders" in answer.get("message", "")


async def _admits(api: RestClient) -> bool:
    """Return whether the policy is not in force."""
    return not await _denies(api)


async def hinder(api: RestClient, how: str) -> None:
    """Make the API server refuse placeholders."""
    if how == "quota":
        spec = {"hard": {"pods": "0"}}
        item = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": spec}
        await api.post(f"{CAPACITY}/resourcequotas", item)
        status = {"status": {**spec, "used": {"pods": "0"}}}  # as the controller of quotas writes it
        await api.patch(f"{CAPACITY}/resourcequotas/none/status", status)
    elif how == "right":
        await api.delete("/apis/rbac.authorization.k8s.io/v1/namespaces/neuron-scheduler-capacity/rolebindings")
    elif how == "policy":
        for item in DENYING:
            await api.apply(item)
        await until(partial(_denies, api))
    elif how == "priority class":
        await api.delete("/apis/scheduling.k8s.io/v1/priorityclasses/neuron-scheduler-capacity")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("right", 'cannot create resource "pods"'),
        ("quota", "exceeded quota: none"),
        ("policy", "no placeholders here"),
        ("priority class", "no PriorityClass with name neuron-scheduler-capacity was found"),
    ],
)
async def test_an_api_server_that_refuses(
    empty: RestClient, account: Path, tmp_path: Path, how: str, said: str
) -> None:
    """One line and one Event say what is wrong; the process starts, and other pods are scheduled."""
    try:
        await hinder(empty, how)
        async with asking(account, tmp_path, NO_KUBELET) as scheduler:
            await scheduler.line(ACQUIRED)
            await fragment(empty, "a")
            await refused(empty, "four", neuron=4)
            (event,) = await events_of(empty, "four", "NeuronCapacityRefused")
            assert said in event["note"]
            await scheduler.line("The API server refuses a request for a machine", "scheduling goes on")
            await scheduler.until(lambda metrics: metrics['neuron_scheduler_capacity_requests{state="refused"}'] == 1)
            await placed(empty, "one", neuron=1)
            missing = scheduler.lines_with("The API server does not allow capacity requests")
            assert len(missing) == (how == "right")
            await empty.wait_for(f"{PODS}/four", lambda pod: condition_of(pod)["message"].endswith("incoming pod."))
            assert await scheduler.stop() == 0
    finally:
        await empty.request("DELETE", f"{CAPACITY}/resourcequotas/none")
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            await empty.request("DELETE", f"/apis/admissionregistration.k8s.io/v1/{kind}/no-placeholders")
        await until(partial(_admits, empty))
        await grant_capacity(empty)

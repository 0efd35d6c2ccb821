"""What is read of a cluster over HTTP, and what a refusal or a failure becomes."""

import json
from typing import Any

import attrs
import pytest
from aiohttp import web

from neuron_scheduler.commands.check.reader import WATCHED, Reader
from neuron_scheduler.commands.check.subjects.snapshot import Lease, Snapshot, Unread
from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.settings.config import Config
from neuron_scheduler.telemetry.errors import ConfigurationError, UnreachableError
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.wiring import wire
from tests.support import wire_objects
from tests.support.listing_server import (
    ACCOUNTS,
    DAEMON_SETS,
    DEPLOYMENTS,
    LEASE,
    NODES,
    PODS,
    ListingServer,
    listing,
    neuron_pod,
    workload,
)

CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"


async def read(server: ListingServer, **options: Any) -> Snapshot:
    """Read the server's objects."""
    async with Client(connection=Connection(server.url, "a test")) as client:
        return await Reader(client=client, server=server.url, source="a test", **options).read()


async def test_the_watched_kinds_are_those_of_the_process() -> None:
    """The rights that are asked for are those that `run` asks for at its start."""
    parts = wire(Config(), Client(connection=Connection("http://127.0.0.1:1", "a test")), Metrics())
    assert tuple(informer.resource for informer in parts.informers) == WATCHED


async def test_an_api_server_that_serves_nothing_else() -> None:
    """A kind that is not served has no objects, and no right is missing."""
    async with listing() as server:
        snapshot = await read(server)
    assert snapshot.unread == ()
    assert snapshot.version == "v1.36.2"
    assert (snapshot.nodes, snapshot.pods, snapshot.deployments, snapshot.rights) == ((), (), (), ())
    assert snapshot.lease is None
    assert not snapshot.installed


async def test_kinds_that_are_not_served() -> None:
    """Discovery shows which of the watched kinds are missing; where it may not be read, that is said."""
    served = tuple(r.path for r in WATCHED if r.group != "policy" and r.name != "csinodes")
    async with listing(served=served) as server:
        assert (await read(server)).not_served == (
            "/apis/policy/v1/poddisruptionbudgets",
            "/apis/storage.k8s.io/v1/csinodes",
        )
    async with listing(served=(), lists={"/api/v1": 403}) as server:
        assert (await read(server)).not_served == Unread("get /api/v1")


async def test_nodes_with_what_only_the_check_reads() -> None:
    """Usage maps, the reason of NeuronHealth, and a node that cannot be read."""
    annotations = {"NEURON_DEV_USAGE_MAP": "true", "other": "x"}
    conditions = [{"type": "NeuronHealth", "status": "True", "reason": "NeuronHasError_DMA_ERROR"}]
    nodes = [
        wire_objects.node("a", metadata={"annotations": annotations}, status={"conditions": conditions}),
        wire_objects.node("b", spec={"taints": 7}),
    ]
    async with listing(lists={NODES: nodes}) as server:
        snapshot = await read(server)
    faulty, odd = snapshot.nodes
    assert (faulty.usage_maps, faulty.health) == ({"NEURON_DEV_USAGE_MAP": "true"}, "NeuronHasError_DMA_ERROR")
    assert faulty.node.neuron_unhealthy
    assert "cannot be read" in odd.node.refusal


async def test_of_pods_only_some_are_kept() -> None:
    """Those with Neuron, no placeholders, those that cannot be read, and those of the system; over several pages."""
    plain = [wire_objects.pod(f"plain-{number}") for number in range(700)]
    plugin = wire_objects.pod("plugin", metadata={"labels": {"name": "neuron-device-plugin-ds"}})
    plugin["spec"]["serviceAccountName"] = "neuron-device-plugin"
    odd = wire_objects.pod("odd", spec={"containers": 7, "nodeName": "n"})
    asking = neuron_pod("placeholder", 16)
    asking["metadata"]["namespace"] = "neuron-scheduler-capacity"
    pods = [*plain, asking, neuron_pod("ours", 4, on="n"), plugin, odd]
    lease = {
        "metadata": {"name": "my-scheduler", "namespace": "kube-system", "resourceVersion": "3"},
        "spec": {
            "holderIdentity": "my-scheduler-5f6d-x_0a1b",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-11-22T10:00:00.000000Z",
        },
    }
    async with listing(lists={PODS: pods}, objects={LEASE: lease}) as server:
        snapshot = await read(server, now=lambda: 1795341607.0)
    assert server.requests.count(PODS) == 2
    assert [(each.pod.key, each.readable) for each in snapshot.pods] == [("default/ours", True), ("default/odd", False)]
    assert [(seen.pod.name, seen.account) for seen in snapshot.system_pods] == [("plugin", "neuron-device-plugin")]
    assert snapshot.lease == Lease("my-scheduler-5f6d-x_0a1b", 15, 7.0)
    assert snapshot.cluster.node_of("uid-ours") == "n"


UNAUTHORIZED = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 401, "reason": "Unauthorized"}
KUBE_CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: my-scheduler}, {schedulerName: batch}]
"""


@pytest.mark.parametrize(
    ("fields", "data", "mode", "serves"),
    [
        (
            {"args": ["run", "--config=/c"], "config_maps": ["c"]},
            "kind: NeuronSchedulerConfiguration",
            "run",
            ("my-scheduler",),
        ),
        ({"args": ["run"]}, "", "run", ("my-scheduler",)),
        ({"command": ["neuron-scheduler", "run"], "args": ["--scheduler-name=x"]}, "", "run", ("x",)),
        ({"args": ["extender"]}, "", "extender", ()),
        (
            {"command": ["/usr/local/bin/kube-scheduler"], "config_maps": ["c"]},
            KUBE_CONFIG,
            "",
            ("my-scheduler", "batch"),
        ),
        (
            {"command": ["kube-scheduler"], "config_maps": ["c"]},
            "kind: KubeSchedulerConfiguration",
            "",
            ("default-scheduler",),
        ),
        ({"command": ["kube-scheduler"], "config_maps": ["c"]}, "]: SchedulerConfiguration", "", None),
        ({"image": "public.ecr.aws/neuron/neuron-scheduler:2.30.0.0"}, "", "", None),
    ],
    ids=range(8),
)
async def test_what_a_scheduler_serves(fields: Any, data: str, mode: str, serves: object) -> None:
    """By its flags and its ConfigMap; unknown where neither says it."""
    deployment = workload("some-scheduler", **fields)
    objects = {f"{CONFIG_MAPS}/c": {"data": {"config.yaml": data}}}
    async with listing(lists={DEPLOYMENTS: [deployment, workload("web")]}, objects=objects) as server:
        snapshot = await read(server)
    (seen,) = snapshot.deployments
    assert (seen.mode, seen.serves) == (mode, serves)


async def test_the_config_maps_of_other_programs_are_not_read() -> None:
    """Not every program with `scheduler` in its name schedules pods."""
    airflow = workload("airflow-scheduler", command=["airflow", "scheduler"], config_maps=["airflow"])
    async with listing(lists={DEPLOYMENTS: [airflow]}) as server:
        snapshot = await read(server)
    assert [deployment.serves for deployment in snapshot.deployments] == [None]
    assert f"{CONFIG_MAPS}/airflow" not in server.requests


async def test_rights_of_the_service_account() -> None:
    """Each is reviewed once; those that are missing are named."""
    async with listing(
        lists={ACCOUNTS: [wire_objects.node("neuron-scheduler")]}, denied=frozenset({"list nodes", "create pods"})
    ) as server:
        snapshot = await read(server)
    assert isinstance(snapshot.rights, tuple)
    assert [access.right for access in snapshot.rights if not access.allowed] == ["list nodes", "create pods/binding"]
    assert len(snapshot.rights) == 2 * len(WATCHED) + 14


async def test_nothing_is_read_of_asking_where_nobody_asks() -> None:
    """The person who checks needs no right for what is not used."""
    async with listing(lists={DEPLOYMENTS: [workload("my-scheduler", args=["run"])]}) as server:
        snapshot = await read(server)
    assert snapshot.asking is None
    assert not [path for path in server.requests if "capacity" in path or "autoscaling" in path]


async def test_what_asking_for_machines_needs() -> None:
    """The namespace, the priority class, and the rights there."""
    profile = {"schedulerName": "my-scheduler", "capacityRequests": {}}
    config = json.dumps({"kind": "NeuronSchedulerConfiguration", "profiles": [profile, {"capacityRequests": None}]})
    deployment = workload("my-scheduler", args=["run", "--scheduler-name=x"], config_maps=["c"])
    async with listing(
        lists={DEPLOYMENTS: [deployment], ACCOUNTS: [wire_objects.node("my-scheduler")]},
        objects={
            f"{CONFIG_MAPS}/c": {"data": {"config.yaml": config}},
            "/api/v1/namespaces/neuron-scheduler-capacity": {},
        },
        denied=frozenset({"create pods"}),
    ) as server:
        asking = (await read(server)).asking
    assert asking is not None
    assert (asking.namespace, asking.priority_class) == (True, False)
    assert isinstance(asking.rights, tuple)
    refused = ["create pods in namespace neuron-scheduler-capacity"]
    assert [access.right for access in asking.rights if not access.allowed] == refused


async def test_what_may_not_be_read_of_asking() -> None:
    """It is named, and is never fine."""
    config = "{kind: NeuronSchedulerConfiguration, profiles: [{capacityRequests: {}}]}"
    deployment = workload("my-scheduler", args=["run"], config_maps=["c"])
    objects = {f"{CONFIG_MAPS}/c": {"data": {"config.yaml": config}}}
    async with listing(lists={DEPLOYMENTS: [deployment]}, objects=objects, default=403) as server:
        snapshot = await read(server)
    assert snapshot.asking is not None
    assert {"get namespaces", "get priorityclasses.scheduling.k8s.io"} <= {one.request for one in snapshot.unread}


async def test_rights_that_may_not_be_reviewed() -> None:
    """It is said which right the reader lacks, after one request."""
    async with listing(lists={ACCOUNTS: [wire_objects.node("neuron-scheduler")]}, reviews=False) as server:
        snapshot = await read(server)
    assert snapshot.rights == Unread("create subjectaccessreviews.authorization.k8s.io")
    assert sum("subjectaccessreviews" in path for path in server.requests) == 1


async def test_refusals_and_failures() -> None:
    """Each becomes `Unread` with the request; the rest is read."""
    lists = {DAEMON_SETS: 403, DEPLOYMENTS: 500, NODES: [wire_objects.node("a")]}
    async with listing(lists=lists) as server:
        snapshot = await read(server)
    assert snapshot.daemon_sets == Unread("list daemonsets.apps")
    assert isinstance(snapshot.deployments, Unread)
    assert not snapshot.deployments.forbidden
    assert snapshot.deployments.reason.startswith("500")
    assert [each.node.name for each in snapshot.nodes] == ["a"]
    assert {one.request for one in snapshot.unread} == {"list daemonsets.apps", "list deployments.apps"}


async def test_an_object_that_cannot_be_read() -> None:
    """It is named, and the others are read."""
    odd = workload("odd-scheduler") | {"spec": 7}
    async with listing(lists={DEPLOYMENTS: [odd, workload("a-scheduler")]}) as server:
        snapshot = await read(server)
    assert [deployment.object.name for deployment in snapshot.deployments] == ["a-scheduler"]
    (text,) = snapshot.malformed
    assert text.startswith("Deployment kube-system/odd-scheduler: ")


@pytest.mark.parametrize("status", [401, 403])
async def test_a_proxys_refusal_is_not_a_missing_right(status: int) -> None:
    """What a proxy refuses has failed: it knows nothing of the reader's rights, and the rest is checked."""
    async with listing(lists={NODES: [wire_objects.node("a")]}, pages={DEPLOYMENTS: status}) as server:
        snapshot = await read(server)
    assert isinstance(snapshot.deployments, Unread)
    assert not snapshot.deployments.forbidden
    assert f"{status}: <html>" in snapshot.deployments.reason


async def test_a_reader_without_any_right() -> None:
    """All that is read is `Unread`, and names its request."""
    async with listing(default=403) as server:
        snapshot = await read(server)
    requests = {one.request for one in snapshot.unread}
    assert {"list nodes", "list pods", "list roles.rbac.authorization.k8s.io in namespace kube-system"} <= requests
    unread = {field.name for field in attrs.fields(Snapshot) if isinstance(getattr(snapshot, field.name), Unread)}
    assert unread >= {"nodes", "pods", "slices", "deployments", "daemon_sets", "lease", "policies", "role_bindings"}


async def test_nodes_with_dra() -> None:
    """ResourceSlices of AWS's driver, in the newest version that is served."""
    slices = [
        {"metadata": {"name": name}, "spec": {"driver": driver, "nodeName": name}}
        for name, driver in (("a", "neuron.aws.com"), ("b", "gpu.example.com"))
    ]
    async with listing(lists={"/apis/resource.k8s.io/v1beta2/resourceslices": slices}) as server:
        snapshot = await read(server)
    assert snapshot.slices == frozenset({"a"})


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (web.json_response(UNAUTHORIZED, status=401), ConfigurationError),
        (web.Response(status=401, text="<html>Please log in</html>"), UnreachableError),
        (web.Response(status=403, text="<html>Not you</html>"), UnreachableError),
        (web.Response(text="<html>welcome</html>"), UnreachableError),
        (web.Response(text=json.dumps({"status": "up"})), UnreachableError),
    ],
    ids=["401", "a proxy's 401", "a proxy's 403", "html", "another service"],
)
async def test_no_api_server(version: web.Response, error: type[Exception]) -> None:
    """Something else answers, or does not know us: nothing can be checked."""
    async with listing(version=version) as server:
        with pytest.raises(error):
            await read(server)

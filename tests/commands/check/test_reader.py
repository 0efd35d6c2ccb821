"""What is read of a cluster over HTTP, and what a refusal or a failure becomes."""

import json
from typing import Any

import attrs
import pytest
from aiohttp import web

from neuron_scheduler.commands.check.reader import SnapshotReader
from neuron_scheduler.commands.check.subjects.snapshot import Lease, Snapshot, Unread
from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.reviews import rights_to_lead, rights_to_schedule
from neuron_scheduler.model.pod_group import Dialect, GroupKey
from neuron_scheduler.settings.config import Config
from neuron_scheduler.telemetry.errors import ConfigurationError, UnreachableError
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.wiring import wire
from tests.support import wire_objects
from tests.support.listing_server import (
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
    async with Client(connection=Connection(server.url, "a test")) as client:
        return await SnapshotReader(client=client, **options).read()


async def test_an_api_server_that_serves_nothing_else() -> None:
    """A kind that is not served has no objects, and no right is missing."""
    async with listing() as server:
        snapshot = await read(server)
    assert snapshot.unread == ()
    assert snapshot.version == "v1.36.2"
    assert (snapshot.nodes, snapshot.pods, snapshot.deployments, snapshot.rights) == ((), (), (), {})
    assert snapshot.lease is None


async def test_nodes_and_pods() -> None:
    """Of pods those with Neuron, no placeholders, over several pages; what cannot be read is known by name."""
    plain = [wire_objects.pod(f"plain-{number}") for number in range(700)]
    odd = wire_objects.pod("odd", spec={"containers": 7, "nodeName": "n"})
    asking = neuron_pod("placeholder", 16)
    asking["metadata"]["namespace"] = "neuron-scheduler-capacity"
    launcher, ending = (wire_objects.pod(name) for name in ("launcher", "ending"))
    for member in (launcher, ending):
        prefix = "pod-group.scheduling.sigs.k8s.io"
        member["metadata"]["labels"] = {f"{prefix}/name": "train", f"{prefix}/min-available": "2"}
    ending["metadata"]["deletionTimestamp"] = "2026-11-22T10:00:00Z"
    pinned = neuron_pod("ours", 4, on="n")
    for pod, name in ((pinned, "NEURON_RT_VISIBLE_CORES"), (plain[0], "NEURON_VISIBLE_DEVICES")):
        pod["spec"]["containers"][0]["env"] = [{"name": name, "value": "0-3"}]
    pods = [*plain, asking, pinned, odd, launcher, ending]
    nodes = [wire_objects.node("n"), wire_objects.node("odd", spec={"taints": 7})]
    lease = {
        "metadata": {"name": "my-scheduler", "namespace": "kube-system", "resourceVersion": "3"},
        "spec": {
            "holderIdentity": "my-scheduler-5f6d-x_0a1b",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-11-22T10:00:00.000000Z",
        },
    }
    async with listing(lists={NODES: nodes, PODS: pods}, objects={LEASE: lease}) as server:
        snapshot = await read(server, now=lambda: 1795341607.0)
    assert server.requests.count(PODS) == 2
    assert [node.name for node in snapshot.nodes if "cannot be read" in node.refusal] == ["odd"]
    assert [pod.key for pod in snapshot.pods] == ["default/ours"]
    assert snapshot.pinned == ("default/ours",)
    groups = snapshot.cluster.groups
    assert [pod.key for key in groups for pod in groups.members(key).values()] == ["default/launcher"]
    assert snapshot.taken == 1795341607.0
    unreadable = snapshot.cluster.pod_info("uid-odd")
    assert unreadable is not None
    assert (unreadable.unreadable, unreadable.pod.key) == (True, "default/odd")
    assert [text.partition(": ")[0] for text in snapshot.malformed] == ["Pod default/odd"]
    assert snapshot.lease == Lease("my-scheduler-5f6d-x_0a1b", 15, 7.0)
    assert [snapshot.cluster.node_of(uid) for uid in ("uid-ours", "uid-odd")] == ["n", "n"]


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


OURS = workload("my-scheduler", args=["run"])


async def test_rights_of_the_service_account() -> None:
    """They are those that `run` asks for at its start. Each is reviewed once; those that are missing are named."""
    async with listing(lists={DEPLOYMENTS: [OURS]}, denied=frozenset({"list nodes", "create pods"})) as server:
        rights = (await read(server)).rights
    assert isinstance(rights, dict)
    assert [right for right, allowed in rights.items() if not allowed] == ["list nodes", "create pods/binding"]
    assert sum("subjectaccessreviews" in path for path in server.requests) == len(rights)
    parts = wire(Config(), Client(connection=Connection("http://127.0.0.1:1", "a test")), Metrics())
    watched = [informer.resource for informer in parts.informers]
    assert list(rights) == [*map(str, (*rights_to_schedule(watched), *rights_to_lead("kube-system", "my-scheduler")))]


@pytest.mark.parametrize(
    ("args", "config", "on"),
    [
        (["run", "--claims"], "", True),
        (["run"], "claims: true", True),
        (["run", "--claims=false"], "claims: true", False),
        (["run"], "", False),
    ],
)
async def test_who_publishes_devices_and_whether_claims_are_on(args: list[str], config: str, *, on: bool) -> None:
    """Nodes of AWS's driver count; the rights for claims are reviewed only where they are on."""
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    drivers = {"a": "neuron.aws.com", "b": "dra.net", "": "neuron.aws.com"}
    slices = [
        {"metadata": {"name": f"s{node}"}, "spec": {"driver": driver, "nodeName": node, "pool": pool}}
        for node, driver in drivers.items()
    ]
    deployment = workload("my-scheduler", args=args, config_maps=["c"])
    data = {"data": {"config.yaml": f"kind: NeuronSchedulerConfiguration\n{config}"}}
    denied = frozenset({"update resourceclaims", "watch resourceslices"})
    device_lists: dict[str, list[Any]] = {
        f"/apis/resource.k8s.io/v1/{name}": [] for name in ("deviceclasses", "resourceclaims")
    }
    lists = {DEPLOYMENTS: [deployment], "/apis/resource.k8s.io/v1/resourceslices": slices, **device_lists}
    async with listing(lists=lists, objects={f"{CONFIG_MAPS}/c": data}, denied=denied) as server:
        snapshot = await read(server)
    assert snapshot.publishing == frozenset({"a"})
    assert snapshot.has_claims is on
    assert isinstance(snapshot.rights, dict)
    lacking = {right for right, allowed in snapshot.rights.items() if not allowed}
    of_claims = {
        f"{verb} resourceclaims{sub}" for verb, sub in [("update", ""), ("update", "/status"), ("update", "/binding")]
    }
    assert lacking == ({f"{right}.resource.k8s.io" for right in {*of_claims, "watch resourceslices"}} if on else set())


async def test_pod_groups_where_they_are_served() -> None:
    """They are read, and the rights for them are reviewed; elsewhere nobody needs one."""
    prefix = "/apis/scheduling.x-k8s.io/v1alpha1"
    pod_group = {"metadata": {"name": "train", "namespace": "ml", "uid": "u"}, "spec": {"minMember": 3}}
    async with listing(
        lists={DEPLOYMENTS: [OURS], f"{prefix}/podgroups": [pod_group]},
        objects={prefix: {"resources": [{"name": "podgroups"}]}},
        denied=frozenset({"watch podgroups"}),
    ) as server:
        snapshot = await read(server)
    assert isinstance(snapshot.rights, dict)
    lacking = [right for right, allowed in snapshot.rights.items() if not allowed]
    assert lacking == ["watch podgroups.scheduling.x-k8s.io"]
    assert snapshot.cluster.groups.group(GroupKey(Dialect.COSCHEDULING, "ml", "train")).least == 3
    assert snapshot.cluster.groups.watched == {Dialect.COSCHEDULING}, "a group without an object waits for it"


@pytest.mark.parametrize(
    ("status", "behind"),
    [
        ({"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}, 0),
        ({"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1}, 2),  # a pod of the new revision is not ready
        ({"replicas": 4, "readyReplicas": 2, "updatedReplicas": 2}, 2),  # maxSurge lets both be created
        ({"replicas": 2, "readyReplicas": 2}, 2),  # a quota refuses the new pods
    ],
)
async def test_a_rollout_that_is_stuck(status: dict[str, int], behind: int) -> None:
    """The pods of the old revision are ready, so only their revision shows it."""
    async with listing(lists={DEPLOYMENTS: [workload("my-scheduler", args=["run"], status=status)]}) as server:
        (deployment,) = (await read(server)).ours
    assert (deployment.ready, deployment.behind) == (2, behind)


async def test_nothing_is_read_of_asking_where_nobody_asks() -> None:
    """The person who checks needs no right for what is not used."""
    async with listing(lists={DEPLOYMENTS: [OURS]}) as server:
        snapshot = await read(server)
    assert snapshot.lacking is None
    assert not [path for path in server.requests if "capacity" in path or "autoscaling" in path]


async def test_what_asking_for_machines_needs() -> None:
    """What is not there is named: objects of the component, and rights."""
    profile = {"schedulerName": "my-scheduler", "capacityRequests": {}}
    config = json.dumps({"kind": "NeuronSchedulerConfiguration", "profiles": [profile, {"capacityRequests": None}]})
    deployment = workload("my-scheduler", args=["run", "--scheduler-name=x"], config_maps=["c"])
    there = ("/api/v1/namespaces", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies")
    objects: dict[str, Any] = {f"{path}/neuron-scheduler-capacity": {} for path in there}
    async with listing(
        lists={DEPLOYMENTS: [deployment]},
        objects={f"{CONFIG_MAPS}/c": {"data": {"config.yaml": config}}, **objects},
        denied=frozenset({"create pods"}),
    ) as server:
        lacking = (await read(server)).lacking
    assert lacking == (
        "priorityclasses/neuron-scheduler-capacity",
        "validatingadmissionpolicybindings/neuron-scheduler-capacity",
        "the right to create pods in namespace neuron-scheduler-capacity",
    )


async def test_what_may_not_be_read_of_asking() -> None:
    """It is named, and is never fine."""
    config = "{kind: NeuronSchedulerConfiguration, profiles: [{capacityRequests: {}}]}"
    deployment = workload("my-scheduler", args=["run"], config_maps=["c"])
    objects = {f"{CONFIG_MAPS}/c": {"data": {"config.yaml": config}}}
    async with listing(lists={DEPLOYMENTS: [deployment]}, objects=objects, default=403) as server:
        snapshot = await read(server)
    assert snapshot.lacking == Unread("get namespaces")
    assert snapshot.lacking in snapshot.unread


async def test_rights_that_may_not_be_reviewed() -> None:
    """It is said which right the reader lacks, after one request."""
    async with listing(lists={DEPLOYMENTS: [OURS]}, reviews=False) as server:
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
    assert [node.name for node in snapshot.nodes] == ["a"]
    assert {one.request for one in snapshot.unread} == {"list daemonsets.apps", "list deployments.apps"}


async def test_an_object_that_cannot_be_read() -> None:
    """It is named, and the others are read."""
    odd = workload("odd-scheduler") | {"spec": 7}
    async with listing(lists={DEPLOYMENTS: [odd, workload("a-scheduler")]}) as server:
        snapshot = await read(server)
    assert [deployment.name for deployment in snapshot.deployments] == ["a-scheduler"]
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
    assert {"list nodes", "list pods", "get leases.coordination.k8s.io"} <= requests
    unread = {field.name for field in attrs.fields(Snapshot) if isinstance(getattr(snapshot, field.name), Unread)}
    assert unread >= {"nodes", "pods", "deployments", "daemon_sets", "lease", "policies", "policy_bindings", "rights"}


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (web.json_response(UNAUTHORIZED, status=401), ConfigurationError),
        (web.Response(status=401, text="<html>Please log in</html>"), UnreachableError),
        (web.Response(status=403, text="<html>Not you</html>"), UnreachableError),
        (web.Response(status=404, text="<html>Not here</html>"), UnreachableError),
        (web.Response(text="<html>welcome</html>"), UnreachableError),
        (web.Response(text=json.dumps({"status": "up"})), UnreachableError),
    ],
    ids=["401", "a proxy's 401", "a proxy's 403", "404", "html", "another service"],
)
async def test_no_api_server(version: web.Response, error: type[Exception]) -> None:
    """Something else answers, or does not know us: nothing can be checked."""
    async with listing(version=version) as server:
        with pytest.raises(error):
            await read(server)

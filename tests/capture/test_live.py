"""A cluster from its API server: with few rights, with hostile objects, and as the running process sees it."""

from random import Random
from typing import Any

import pytest

from neuron_scheduler.capture import live
from neuron_scheduler.capture.collection import Capture
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.model.pod_group import UNKNOWN
from neuron_scheduler.settings.config import Config
from neuron_scheduler.telemetry.errors import ApiError, ConfigurationError, NeuronSchedulerError, UnreachableError
from neuron_scheduler.telemetry.line_formats import leaves
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.wiring import Parts, wire
from tests.capture.test_files import ITEMS, node, pod, spoil
from tests.support.harness import decide
from tests.support.listing_server import NODES, PODS, ListingServer, listing
from tests.support.thoroughness import examples

TYPES = ("trn1.32xlarge", "inf2.24xlarge", "inf2.48xlarge", "m5.large")


def client_of(server: ListingServer) -> Client:
    return Client(connection=Connection(server.url, "a test"))


async def read(server: ListingServer, **options: Any) -> Capture:
    """Return the capture; of a group of errors the first is raised, as by the commands."""
    try:
        async with client_of(server) as client:
            return await live.read(client, **options)
    except* NeuronSchedulerError as group:
        first = next(leaves(group))
    raise first


async def test_every_kind_is_listed_once() -> None:
    """A kind that is not served is noted."""
    async with listing(lists={NODES: ITEMS[:1], PODS: ITEMS[1:]}, default=404) as server:
        capture = await read(server)
    assert [waiting.name for waiting in capture.waiting] == ["b"]
    assert sorted(server.requests) == sorted(set(server.requests))
    assert len(capture.notes) == 13


async def test_kinds_that_the_reader_may_not_list() -> None:
    """Each is a note that says what is not considered."""
    async with listing(lists={NODES: ITEMS[:1], PODS: ITEMS[1:]}, default=403) as server:
        notes = (await read(server)).notes
    assert (
        "poddisruptionbudgets cannot be listed (the right is missing): which evictions a disruption budget forbids is"
        " not known" in notes
    )
    assert (
        "persistentvolumes cannot be listed (the right is missing): answers about pods with volumes may be wrong"
        in notes
    )
    assert "services cannot be listed (the right is missing): a pod may be spread over nodes differently" in notes
    assert any(note.startswith("namespaces cannot be listed") for note in notes)


@pytest.mark.parametrize(
    ("lists", "missing"), [({}, "(nodes|pods)"), ({PODS: []}, "nodes"), ({NODES: ITEMS[:1]}, "pods")]
)
async def test_without_the_rights_for_nodes_or_pods(lists: dict[str, Any], missing: str) -> None:
    """There is no answer; the error says which right is missing, and what to do."""
    async with listing(lists=lists, default=403) as server:
        with pytest.raises(ConfigurationError, match=f"may not list {missing} .*; ask the running scheduler"):
            await read(server)


async def test_a_server_that_does_not_know_us() -> None:
    """401 is an error of the configuration, whichever kind is listed."""
    async with listing(default=401) as server:
        with pytest.raises(ConfigurationError, match="does not accept our credentials"):
            await read(server)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_proxys_refusal_is_not_the_api_servers(status: int) -> None:
    """It is a failure of a kind that is needed, and a note for another; no right is called missing."""
    async with listing(pages={PODS: status}, lists={NODES: ITEMS[:1]}) as server:
        with pytest.raises(ApiError, match=f"{status}: <html>"):
            await read(server)
    claims = "/api/v1/persistentvolumeclaims"
    async with listing(pages={claims: status}, lists={NODES: ITEMS[:1], PODS: []}) as server:
        notes = (await read(server)).notes
    assert any(f"{status}: <html>" in note for note in notes)


async def test_failures() -> None:
    """Nodes and pods are needed; another kind that fails is noted with the reason."""
    async with listing(lists={NODES: ITEMS[:1]}, default=500) as server:
        with pytest.raises(ApiError):
            await read(server)
    async with listing(lists={NODES: ITEMS[:1], PODS: []}, default=500) as server:
        notes = (await read(server)).notes
    assert len(notes) == 13
    assert all("cannot be listed (500" in note for note in notes)
    with pytest.raises(UnreachableError):
        await read(ListingServer(url="http://127.0.0.1:1"))


def some_cluster(dice: Random) -> dict[str, list[Any]]:
    """Return nodes and pods, of which some hold devices, some wait, and some are spoilt."""
    nodes = [node(f"n{number}", instance_type=dice.choice(TYPES)) for number in range(6)]
    pods = []
    for number in range(30):
        first, count = dice.randint(0, 8), dice.choice((0, 1, 2, 4))
        ids = ",".join(str(first + each) for each in range(count)) if dice.random() < 0.8 else ""
        bound = {"nodeName": f"n{dice.randint(0, 6)}"} if dice.random() < 0.6 else {}
        pods.append(
            pod(
                f"p{number}",
                ids if bound else "",
                phase=dice.choice(("Running", "Running", "Succeeded")) if bound else "Pending",
                scheduler_name=dice.choice(("my-scheduler", "my-scheduler", "default-scheduler")),
                **({"neuron": count} if count else {}),
                **bound,
            )
        )
        pods[-1]["metadata"]["labels"] = {"app": dice.choice("abc")}
        if not bound and dice.random() < 0.2:
            pods[-1]["spec"]["affinity"] = {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
                    ]
                }
            }
    for item in dice.sample([*nodes, *pods], 4):
        own = {key: item["metadata"][key] for key in ("name", "namespace", "uid") if key in item["metadata"]}
        spoil(dice, item)
        metadata = item["metadata"] if isinstance(item["metadata"], dict) else {}
        item["metadata"] = metadata | own  # an API server gives every object these
    return {NODES: nodes, PODS: pods}


async def process_of(server: ListingServer) -> tuple[Parts, Cluster]:
    """Return a running process that has listed everything, and has not scheduled yet."""
    async with client_of(server) as client:
        parts = wire(Config(leader_elect=False), client, Metrics())
        for informer in parts.informers:
            await informer._list()
    return parts, parts.cluster


def rows(cluster: Cluster) -> dict[str, Any]:
    """Return what is known of each node and its pods."""
    return {row.node.name: (row, dict(row.pod_infos)) for row in cluster.view.rows()}


@pytest.mark.parametrize("seed", range(examples(25)))
async def test_a_capture_is_the_cluster_of_the_process(seed: int) -> None:
    """The same rows in the same order, the same pods wait, and every decision is the same."""
    dice = Random(seed)
    budget = {"metadata": {"name": "b", "namespace": "default", "uid": "uid-b"}, "spec": {"selector": {}}}
    lists = some_cluster(dice) | {"/apis/policy/v1/poddisruptionbudgets": [budget]}
    async with listing(lists={path: lists.get(path, []) for path in _paths()}) as server:
        capture = await read(server)
        parts, cluster = await process_of(server)
    assert list(rows(capture.cluster)) == list(rows(cluster))
    assert rows(capture.cluster) == rows(cluster)
    assert [*capture.cluster.budgets.of("default").by_key] == ["default/b"]
    ours = [waiting for waiting in capture.waiting if waiting.scheduler_name == "my-scheduler"]
    queued = {waiting.key: waiting for waiting in parts.queue.first(99)}
    assert {waiting.key: waiting for waiting in ours} == queued
    for waiting in ours:
        assert decide(capture.cluster, waiting) == decide(cluster, waiting)


def _paths() -> list[str]:
    parts = wire(Config(leader_elect=False), Client(connection=Connection("http://127.0.0.1:1", "a test")), Metrics())
    return [informer.resource.path for informer in parts.informers]


PREFIX = "/apis/scheduling.x-k8s.io/v1alpha1"


@pytest.mark.parametrize(
    ("listed", "count"),
    [([], UNKNOWN), ([{"metadata": {"name": "g", "namespace": "default", "uid": "u"}}], 1), (403, 0)],
)
async def test_pod_groups_where_they_are_served(listed: Any, count: int) -> None:
    """A pod waits for its PodGroup as in the process; where the reader may not list them, a note says it."""
    member = pod("member", neuron=16, phase="Pending")
    member["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "g"}
    lists = {NODES: ITEMS[:1], PODS: [member], f"{PREFIX}/podgroups": listed}
    async with listing(lists=lists, objects={PREFIX: {"resources": [{"name": "podgroups"}]}}) as server:
        capture = await read(server)
    (waiting,) = capture.waiting
    assert waiting.group is not None
    assert capture.cluster.groups.group(waiting.group.key).least == count
    assert any("only what their pods say counts" in note for note in capture.notes) == (listed == 403)

"""What each verb answers, who answers it, and what the log says."""

import io
import json
from collections.abc import Callable
from typing import Any, cast

import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.extender.bind import Bind
from neuron_scheduler.extender.forward import Forward
from neuron_scheduler.extender.preempt import Preempt
from neuron_scheduler.extender.protocol import (
    ExtenderBindingArgs,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    VerbAnswer,
    requested_pod,
)
from neuron_scheduler.extender.verbs import (
    LONGEST_WAIT,
    WAIT,
    WAITS_AT_ONCE,
    WAITS_PER_SECOND,
    Role,
    Verbs,
)
from neuron_scheduler.scheduling.cycle.profile import extender_profile
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.control_plane.objects import node_manifest, pod_manifest
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.telemetry.test_logs import _logging_as_before  # noqa: F401 - a fixture that every test here uses

SEVEN = (
    "Instance type trn1.32xlarge does not support requests for device: 7. Please request a different number of devices."
)
NAMES = ["trn1", "ghost", "inf2"]


@attrs.define(eq=False)
class Leader:
    """Stands in for `bind`, `preempt` and the way to another replica; remembers what it was asked."""

    asked: list[Any] = attrs.field(factory=list)
    error: str = ""
    crash: bool = False
    answers: VerbAnswer = attrs.field(factory=lambda: VerbAnswer(200, b'{"Error":""}'))
    reads_pods: bool = False
    pause: anyio.Event | None = None

    async def bind(self, args: ExtenderBindingArgs) -> str:
        """Answer `bind`."""
        self.asked.append(args)
        if self.crash:
            raise RuntimeError("broken")
        return self.error

    async def preempt(self, args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        """Answer `preempt`, at once or when a test says so."""
        if self.reads_pods:
            requested_pod(args.pod)
        self.asked.append(args)
        if self.pause is not None:
            await self.pause.wait()
        return ExtenderPreemptionResult(node_name_to_meta_victims={})

    async def send(self, verb: str, body: bytes) -> VerbAnswer:
        """Answer for the leader."""
        self.asked.append((verb, body))
        return self.answers


@attrs.define(eq=False)
class Replica:
    """The verbs of a replica whose role a test sets."""

    cluster: Cluster = attrs.field(
        factory=lambda: cluster_of([node("trn1", "trn1.32xlarge"), node("inf2", "inf2.48xlarge")])
    )
    leader: Leader = attrs.field(factory=Leader)
    role: Role = Role.LEADS
    unsynced: str | None = None
    unexpected: list[str] = attrs.field(factory=list)
    meanwhile: Callable[[], object] = bool
    waits: list[float] = attrs.field(factory=list)
    now: float = 0.0
    slower: int = 1
    verbs: Verbs = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.verbs = Verbs(
            cluster=self.cluster,
            profile=extender_profile(),
            bind=cast(Bind, self.leader),
            preempt=cast(Preempt, self.leader),
            forward=cast(Forward, self.leader),
            sync_problem=lambda: self.unsynced,
            role=lambda: self.role,
            clock=self.clock,
            sleep=self.wait,
            errors=UnexpectedErrors(self.unexpected.append),
        )

    def clock(self) -> float:
        """Return the time, which passes between any two looks at the clock."""
        self.now += 1e-6
        return self.now

    async def wait(self, seconds: float) -> None:
        """Let happen what a test wants to happen before the next look."""
        self.waits.append(seconds)
        self.now += seconds * self.slower
        await anyio.lowlevel.checkpoint()
        self.meanwhile()

    async def ask(self, verb: str, request: Any, **options: Any) -> tuple[int, Any]:
        """Return status and answer, as JSON if it is."""
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        answer: VerbAnswer = await self.verbs.answer(verb, body, **options)
        text = answer.body.decode()
        return answer.status, json.loads(text) if answer.status == 200 else text


@pytest.fixture
def replica() -> Replica:
    """A replica that leads, with a node of trn1 and one of inf2."""
    return Replica()


@pytest.fixture
def lines() -> io.StringIO:
    """The log at the default verbosity."""
    stream = io.StringIO()
    logs.configure(stream=stream)
    return stream


def messages(lines: io.StringIO) -> list[str]:
    """Return the messages in the log, without headers and quotes."""
    return [line.partition('] "')[2].removesuffix('"') for line in lines.getvalue().splitlines()]


def by_names(request: Any, names: list[str] | None = None) -> dict[str, Any]:
    """Return a request as kube-scheduler sends it with `nodeCacheCapable: true`."""
    return {"Pod": request, "Nodes": None, "NodeNames": NAMES if names is None else names}


async def test_the_nodes_of_a_request_are_filtered_and_scored(replica: Replica) -> None:
    """Each name that is left out has its reason."""
    request = by_names(pod_manifest("p", neuron=7))
    assert await replica.ask("filter", request) == (
        200,
        {
            "NodeNames": ["inf2"],
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": {
                "trn1": SEVEN,
                "ghost": "node(s) that the Neuron scheduler does not know yet",
            },
            "Error": "",
        },
    )
    scores = {"trn1": 0, "ghost": 0, "inf2": 10}
    hosts = [{"Host": name, "Score": score} for name, score in scores.items()]
    assert await replica.ask("prioritize", request) == (200, hosts)


async def test_a_pod_that_goes_while_another_is_refused(replica: Replica, lines: io.StringIO) -> None:
    """kube-scheduler may have seen it go before us: the refused pod is looked at once more, and only then answered."""
    replica.cluster.put_pod(pod("old", on="trn1", devices=16, ids=range(16)))
    replica.meanwhile = lambda: replica.cluster.remove_pod("uid-old")
    _, answer = await replica.ask("filter", by_names(pod_manifest("new", neuron=16), ["trn1"]))
    assert answer["NodeNames"] == ["trn1"]
    assert replica.waits == [WAIT]
    assert messages(lines)[0] == "POD new fits in Node:trn1"


async def test_a_pod_that_kube_scheduler_has_seen_go(replica: Replica) -> None:
    """By our count the node is full, and kube-scheduler has sent it: our watch is behind, and is waited for."""
    replica.cluster.put_pod(pod("old", on="trn1", devices=16, ids=range(16)))

    def goes() -> None:
        if len(replica.waits) == 7:
            replica.cluster.remove_pod("uid-old")

    replica.meanwhile = goes
    _, answer = await replica.ask("filter", by_names(pod_manifest("new", neuron=16), ["trn1"]))
    assert answer["NodeNames"] == ["trn1"]
    assert replica.waits == [WAIT] * 7


@pytest.mark.parametrize("slower", [1, 4])
async def test_a_pod_that_does_not_go_is_not_waited_for_longer_than_a_second(replica: Replica, slower: int) -> None:
    """Also on a busy machine, where each wait takes longer than it should."""
    replica.slower = slower
    replica.cluster.put_pod(pod("old", on="trn1", devices=16, ids=range(16)))
    _, answer = await replica.ask("filter", by_names(pod_manifest("new", neuron=16), ["trn1"]))
    assert answer["FailedNodes"] == {"trn1": "Insufficient aws.amazon.com/neuron"}
    assert len(replica.waits) == round(LONGEST_WAIT / WAIT / slower)


async def test_where_only_the_block_is_missing_there_is_one_wait(replica: Replica) -> None:
    """Nothing says that another pod has gone."""
    for device in range(0, 16, 2):
        replica.cluster.put_pod(pod(f"b{device}", on="trn1", devices=1, ids=(device,)))
    _, answer = await replica.ask("filter", by_names(pod_manifest("new", neuron=8), ["trn1"]))
    assert "free block" in answer["FailedNodes"]["trn1"]
    assert replica.waits == [WAIT]


async def test_many_refusals_wait_a_part_of_the_time_only(replica: Replica) -> None:
    """However often a change does not come, kube-scheduler's other pods have their turn."""
    replica.cluster.put_pod(pod("old", on="trn1", devices=16, ids=range(16)))
    while replica.now < 600:
        await replica.ask("filter", by_names(pod_manifest("new", neuron=16), ["trn1"]))
        replica.now += 0.2
    assert sum(replica.waits) <= WAIT * (WAITS_AT_ONCE + 600 * WAITS_PER_SECOND) + LONGEST_WAIT


@pytest.mark.parametrize(
    ("asking", "names"),
    [
        pytest.param(pod_manifest("p", neuron=1), ["trn1"], id="a pod that fits"),
        pytest.param(pod_manifest("p", neuron=7), ["trn1"], id="a count that is never served"),
        pytest.param(pod_manifest("p"), ["trn1"], id="a pod without Neuron"),
        pytest.param(pod_manifest("p", neuron=1), ["ghost"], id="a node that we do not know"),
        pytest.param(pod_manifest("p", neuron=1), [], id="no node"),
    ],
)
async def test_nothing_else_waits(replica: Replica, asking: Any, names: list[str]) -> None:
    """Only a refusal that the end of a pod could change waits."""
    await replica.ask("filter", by_names(asking, names))
    assert replica.waits == []


async def test_the_log_has_the_extensions_lines(replica: Replica, lines: io.StringIO) -> None:
    """Filter writes AWS's lines at the default verbosity, and nothing about pods without Neuron."""
    await replica.ask("filter", by_names(pod_manifest("plain")))
    await replica.ask("prioritize", by_names(pod_manifest("nrt-test-5038", neuroncore=9)))
    assert messages(lines) == []
    await replica.ask("filter", by_names(pod_manifest("nrt-test-5038", neuron=12), ["inf2", "trn1"]))

    assert messages(lines) == [
        "POD nrt-test-5038 fits in Node:inf2",
        "Filtered nodes: [inf2]",
        f"Failed nodes: map[trn1:{SEVEN.replace('7', '12')}]",
        "Finished Processing Filter Request...",
    ]


@pytest.mark.parametrize(
    ("verb", "body", "complaint"),
    [
        pytest.param("filter", b"{", "filter cannot be read: Input data was truncated", id="not JSON"),
        pytest.param("filter", b'{"NodeNames": []}', "it has no Pod", id="no pod"),
        pytest.param("prioritize", by_names(None), "it has no Pod", id="null"),
        pytest.param(
            "filter",
            {"Pod": pod_manifest("p"), "Nodes": {"items": [node_manifest("a")]}},
            "it has no NodeNames; set nodeCacheCapable: true",
            id="whole nodes",
        ),
        pytest.param("bind", b"[]", "bind cannot be read: Expected `object`, got `array`", id="not an object"),
        pytest.param("preempt", b'{"Pod": [', "preempt cannot be read: Input data was truncated", id="cut off"),
    ],
)
async def test_what_cannot_be_read(replica: Replica, verb: str, body: Any, complaint: str) -> None:
    """The status is 400, and the sentence says where the mistake is; nobody else is asked."""
    status, text = await replica.ask(verb, body)
    assert (status, replica.leader.asked) == (400, [])
    assert complaint in text


LONG = "x" * 254


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
async def test_names_and_pods_that_cannot_exist(replica: Replica, verb: str, lines: io.StringIO) -> None:
    """They would fill the log and the memory; nothing is done with them."""
    pod_of_long_name = pod_manifest("p") | {"metadata": {"name": LONG}}
    huge = pod_manifest("p") | {"metadata": {"name": "p", "annotations": {"a": "x" * (4 << 20)}}}
    pod_of_long_uid = pod_manifest("p") | {"metadata": {"name": "p", "uid": LONG}}
    requests = [by_names(pod_of_long_name), by_names(pod_of_long_uid), by_names(huge)]
    replica.leader.reads_pods = True
    if verb != "preempt":
        requests.append(by_names(pod_manifest("p", neuron=1), ["trn1", LONG]))
    for request in requests:
        status, text = await replica.ask(verb, request)
        assert status == 400
        assert "more than" in text or "longer than" in text
        assert len(text) < 200
    assert messages(lines) == []


async def test_one_preemption_at_a_time(replica: Replica) -> None:
    """However many calls there are, they take the turns of one task, and bodies that wait are not read yet."""
    replica.leader.pause = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(replica.ask, "preempt", {"Pod": pod_manifest("p")})
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        assert len(replica.leader.asked) == 1
        assert await replica.ask("bind", BIND) == (200, {"Error": ""})
        replica.leader.pause.set()
    assert len(replica.leader.asked) == 6


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        pytest.param(
            {"metadata": {"name": "p"}, "spec": {"containers": 3}},
            "pod cannot be read: Expected `array | null`, got `int` - at `$.spec.containers`",
            id="malformed",
        ),
        pytest.param(
            {"metadata": {"name": "p"}, "spec": {"containers": []}, "status": {"phase": "Succeeded"}},
            "pod has ended: its phase is Succeeded or Failed",
            id="ended",
        ),
    ],
)
async def test_a_pod_that_no_node_can_take(replica: Replica, broken: Any, reason: str) -> None:
    """The pod's owner reads the reason, which kube-scheduler shows for each node, and no pod is evicted for it."""
    _, answer = await replica.ask("filter", by_names(broken))
    assert (answer["NodeNames"], answer["FailedNodes"]) == ([], {})
    assert answer["FailedAndUnresolvableNodes"] == dict.fromkeys(NAMES, reason)
    _, scores = await replica.ask("prioritize", by_names(broken))
    assert scores == [{"Host": name, "Score": 0} for name in NAMES]


async def test_no_answer_before_the_cluster_is_known(replica: Replica) -> None:
    """Every node would be unknown, and kube-scheduler would wait with its pods for an event."""
    replica.unsynced = "not listed yet: /api/v1/pods"
    for verb in ("filter", "prioritize"):
        status, text = await replica.ask(verb, by_names(pod_manifest("p", neuron=1)))
        assert (status, text) == (503, "the cluster is not known yet: not listed yet: /api/v1/pods\n")


BIND = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "trn1"}


async def test_the_leader_binds(replica: Replica) -> None:
    """The error is in the answer, where kube-scheduler shows it, and `preempt` is answered here as well."""
    assert await replica.ask("bind", BIND) == (200, {"Error": ""})
    replica.leader.error = "node trn1 does not fit any more"
    assert await replica.ask("bind", BIND, forwarded=True) == (200, {"Error": "node trn1 does not fit any more"})
    assert replica.leader.asked == [ExtenderBindingArgs("p", "default", "u", "trn1")] * 2
    assert await replica.ask("preempt", {"Pod": pod_manifest("p")}) == (200, {"NodeNameToMetaVictims": {}})


async def test_a_follower_passes_on(replica: Replica) -> None:
    """It answers filter itself, and passes on what is for the leader, once."""
    replica.role = Role.FOLLOWS
    assert await replica.ask("bind", BIND) == (200, {"Error": ""})
    replica.leader.answers = VerbAnswer(503, b"no leader\n")
    assert await replica.ask("preempt", b"anything") == (503, "no leader\n")
    assert replica.leader.asked == [("bind", json.dumps(BIND).encode()), ("preempt", b"anything")]
    assert await replica.ask("bind", BIND, forwarded=True) == (503, "this replica does not hold the Lease\n")
    assert (await replica.ask("filter", by_names(pod_manifest("p", neuron=1))))[0] == 200
    assert len(replica.leader.asked) == 2


@pytest.mark.parametrize("role", [Role.TAKES_OVER, Role.STOPS])
async def test_between_leaders(replica: Replica, role: Role) -> None:
    """Neither passes on, since the Lease has its own address, nor binds."""
    replica.role = role
    assert await replica.ask("bind", BIND) == (503, f"{role.value}\n")
    assert replica.leader.asked == []


async def test_a_defect_is_one_requests_error(replica: Replica, lines: io.StringIO) -> None:
    """It is counted and logged, and kube-scheduler tries the pod again."""
    replica.leader.crash = True
    status, text = await replica.ask("bind", BIND)
    assert (status, text) == (500, "unexpected error in extender bind: RuntimeError: broken\n")
    assert replica.unexpected == ["extender bind"]
    assert "Unexpected error, please report it" in lines.getvalue()
    assert (await replica.ask("filter", by_names(pod_manifest("p", neuron=1))))[0] == 200


async def test_many_requests_at_once(replica: Replica) -> None:
    """Each is answered in a turn of its own, so that the heartbeat of a leader comes in between."""
    turns, ended = 0, [0]

    async def ask() -> None:
        status, _ = await replica.ask("filter", by_names(pod_manifest("p", neuron=1)))
        assert status == 200
        ended.append(turns)

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(ask)
        while len(ended) <= 50:
            await anyio.lowlevel.checkpoint()
            turns += 1

    assert max(ended.count(turn) for turn in ended) <= 2

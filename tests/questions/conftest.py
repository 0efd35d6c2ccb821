"""The pages of questions over a cluster that a test builds, with the API server of `tests.support.reviews`."""

import json
from collections.abc import Iterable
from typing import Any

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.endpoints.exchange import Page, Reply, Request, Unconnected
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.namespace import Namespace
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.questions.assembly import Asked, assembled
from neuron_scheduler.questions.decision_ring import DecisionRing
from neuron_scheduler.questions.served_profiles import ServedProfiles
from neuron_scheduler.scheduling.cycle.profile import default_profile, extender_profile
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from tests.support.reviews import FakeReviews


@attrs.define(eq=False)
class Desk:
    """
    Where questions are asked.

    Attributes:
        queued: whether it has a queue of its own, beside kube-scheduler's.
        missing: what the process does not know yet.
        leads: whether it is the active replica.
        now: seconds, for its clock.
        capacity_request: what is said of the machine for a pod; None if no profile asks for machines.
    """

    public: bool = False
    queued: bool = True
    budgets: tuple[DisruptionBudget, ...] = ()
    cluster: Cluster = attrs.field(factory=Cluster)
    queue: SchedulingQueue = attrs.field(factory=SchedulingQueue)
    reviews: FakeReviews = attrs.field(factory=FakeReviews)
    missing: str | None = None
    leads: bool = True
    now: float = 50.0
    capacity_request: str | None = None
    ring: DecisionRing = attrs.field(init=False)
    pages: dict[str, Page] = attrs.field(init=False)
    _pods: dict[str, Pod] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.ring = DecisionRing(now=lambda: self.now)
        asked = Asked(
            cluster=self.cluster,
            queue=self.queue,
            pod_of=self._pods.get,
            budgets=lambda: self.budgets,
            profiles=ServedProfiles(
                {"my-scheduler": default_profile("my-scheduler")} if self.queued else {}, extender_profile()
            ),
            decisions=self.ring,
            unsynced=lambda: self.missing,
            leads=lambda: self.leads,
            clock=lambda: self.now,
            now=lambda: self.now,
            capacity_request_of=lambda _: self.capacity_request,
        )
        self.pages = assembled(asked, self.reviews, public=self.public)

    def put(self, nodes: Iterable[Node] = (), pods: Iterable[Pod] = ()) -> None:
        """Add nodes and pods, pending or bound, with their namespaces."""
        for node in nodes:
            self.cluster.put_node(node)
        for pod in pods:
            self._pods[pod.key] = pod
            self.cluster.namespaces.put(Namespace(uid=pod.namespace, name=pod.namespace))
            if pod.node_name:
                self.cluster.put_pod(pod)
            else:
                self.queue.add(pod, self.now)

    async def reply(
        self, target: str, token: str = "admin", *, body: bytes | None = None, peer: str = "127.0.0.1", **fields: str
    ) -> Reply:
        """Return the answer to a request; `fields` are headers, with `_` for `-`."""
        path, _, query = target.partition("?")
        headers = {name.replace("_", "-"): value for name, value in fields.items()}
        if token:
            headers["authorization"] = f"Bearer {token}"
        if body is not None:
            headers.setdefault("content-length", str(len(body)))
        connection = Unconnected(peer, body=body or b"")
        request = Request("GET" if body is None else "POST", path, query, headers, connection=connection)
        return await self.pages[path].answer(request)

    async def json(self, target: str, token: str = "admin", **keywords: Any) -> Any:
        """Return the answer's JSON; it must be one."""
        reply = await self.reply(target, token, **keywords)
        assert reply.status == 200, reply.body
        return json.loads(reply.body + b"".join(reply.more))

    async def refusal(self, target: str, token: str = "admin", **keywords: Any) -> tuple[int, str]:
        """Return status and sentence of a refusal."""
        reply = await self.reply(target, token, **keywords)
        return reply.status, json.loads(reply.body)["message"]


@pytest.fixture
def desk() -> Desk:
    """Questions need a token."""
    return Desk()


@pytest.fixture
def open_desk() -> Desk:
    """The feeds need no token."""
    return Desk(public=True)

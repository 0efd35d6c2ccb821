"""The pages of questions over a cluster that a test builds, with the API server of `tests.support.reviews`."""

import json
from collections.abc import Iterable
from typing import Any, cast

import attrs
import pytest
from aiohttp import web

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.kube.reviews import UserReviews
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selecting_kinds import Namespace
from neuron_scheduler.scheduling.cycle.profile import default_profile, extender_profile
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.serving.pages import WebPage
from neuron_scheduler.serving.questions import question_pages
from neuron_scheduler.serving.sources import AnswerSources, DecisionRing, ServedProfiles
from tests.support.queueing import new_queue
from tests.support.reviews import FakeReviews
from tests.support.web_requests import answer, body_of, request


@attrs.define(eq=False)
class Desk:
    """
    Where questions are asked.

    Attributes:
        queued: whether it has a queue of its own, beside kube-scheduler's.
        missing: what the process does not know yet.
        leads: whether it is the active replica.
        now: seconds, for its clock.
        others: names of other schedulers, whose pods are in no queue here.
        capacity_request: what is said of the machine for a pod; None if no profile asks for machines.
    """

    public: bool = False
    queued: bool = True
    cluster: Cluster = attrs.field(factory=Cluster)
    queue: SchedulingQueue = attrs.field(factory=new_queue)
    reviews: FakeReviews = attrs.field(factory=FakeReviews)
    missing: str | None = None
    leads: bool = True
    now: float = 50.0
    capacity_request: str | None = None
    others: tuple[str, ...] = ()
    ring: DecisionRing = attrs.field(init=False)
    pages: dict[str, WebPage] = attrs.field(init=False)
    _pods: dict[str, Pod] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.ring = DecisionRing(now=lambda: self.now)
        asked = AnswerSources(
            cluster=self.cluster,
            queue=self.queue,
            pod_of=self._pods.get,
            unserved=lambda: [pod for pod in self._pods.values() if pod.scheduler_name in self.others],
            profiles=ServedProfiles(
                {"my-scheduler": default_profile("my-scheduler")} if self.queued else {}, extender_profile()
            ),
            decisions=self.ring,
            sync_problem=lambda: self.missing,
            leads=lambda: self.leads,
            clock=lambda: self.now,
            capacity_request_of=lambda _: self.capacity_request,
        )
        self.pages = question_pages(asked, cast(UserReviews, self.reviews), public=self.public)

    def put(self, nodes: Iterable[Node] = (), pods: Iterable[Pod] = ()) -> None:
        """Add nodes and pods, pending or bound, with their namespaces."""
        for node in nodes:
            self.cluster.put_node(node)
        for pod in pods:
            self._pods[pod.key] = pod
            self.cluster.namespaces.put(Namespace(uid=pod.namespace, name=pod.namespace))
            if pod.node_name:
                self.cluster.put_pod(pod)
            elif pod.scheduler_name not in self.others:
                self.queue.add(pod, self.now)

    async def reply(
        self, target: str, token: str = "admin", *, body: bytes | None = None, peer: str = "127.0.0.1", **fields: str
    ) -> web.Response:
        """Return the answer to a request; `fields` are headers, with `_` for `-`."""
        headers = {name.replace("_", "-"): value for name, value in fields.items()}
        if token:
            headers["authorization"] = f"Bearer {token}"
        asked = request(target, headers, body=body, peer=peer)
        return await answer(self.pages[asked.path], asked)

    async def json(self, target: str, token: str = "admin", **keywords: Any) -> Any:
        """Return the answer's JSON; it must be one."""
        reply = await self.reply(target, token, **keywords)
        body = await body_of(reply)
        assert reply.status == 200, body
        return json.loads(body)

    async def refusal(self, target: str, token: str = "admin", **keywords: Any) -> tuple[int, str]:
        """Return status and sentence of a refusal."""
        reply = await self.reply(target, token, **keywords)
        return reply.status, json.loads(await body_of(reply))["message"]


@pytest.fixture
def desk() -> Desk:
    """Questions need a token."""
    return Desk()


@pytest.fixture
def open_desk() -> Desk:
    """The feeds need no token."""
    return Desk(public=True)

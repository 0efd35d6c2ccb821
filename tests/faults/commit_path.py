"""
Every fault in every request that a pod needs until it runs, all at once: one pod for each pair, one scheduler for all.

The pods that ask for devices fit exactly: if one device were lost, one pod would wait for ever.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import anyio
import attrs

from tests.control_plane.fake_kubelet import FakeKubelet
from tests.control_plane.objects import create_all, create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import STRATEGIC, Object, RestClient
from tests.end_to_end.claims import ZONE, add_claim, add_classes, add_volume, in_zone, provision
from tests.end_to_end.process import SchedulerProcess
from tests.end_to_end.workload import EVENTS, PODS, add_priority_classes, condition_of
from tests.faults.answers import Refusal
from tests.faults.calls import request_for
from tests.faults.catalogue import DEFINITE_REFUSALS, FAULTS
from tests.faults.proxy import Behaviour, Fault, Late, Proxy
from tests.support.patience import PATIENCE

WITHIN: Final = 2 * PATIENCE  # after the conditions that are refused the program itself pauses for 15 s
KEPT_ANNOTATIONS: Final = {"example.com/owner": "somebody else"}
KEPT_CONDITION: Final = "example.com/Gate"
LABEL: Final = "example.com/for"
DEVICES_OF_A_MACHINE: Final = 16


@attrs.frozen
class Request:
    """
    A request of the commit path.

    Attributes:
        method, resource: which request meets the fault.
        prefix: of the name of the object that the request is about, before the name of the fault; empty if that is
            the pod that must be bound in the end.
        pod: the fields of that pod.
        shares: whether its pods fill machines together; else each has a node of its own.
    """

    method: str
    resource: str
    prefix: str = ""
    pod: dict[str, Any] = attrs.field(factory=dict)
    shares: bool = True


REQUESTS: Final = {
    "binding": Request("POST", "pods/binding"),
    "read-back": Request("GET", "pods"),
    "event": Request("POST", "events"),
    "condition": Request("PATCH", "pods/status"),
    "disruption": Request("PATCH", "pods/status", "victim-", {"priorityClassName": "urgent"}, shares=False),
    "eviction": Request("DELETE", "pods", "victim-", {"priorityClassName": "urgent"}, shares=False),
    "volume": Request("PATCH", "persistentvolumes"),
    "claim": Request("PATCH", "persistentvolumeclaims"),
}
WITH_DEVICES: Final = ("binding", "read-back", "event", "condition")
WITH_VICTIMS: Final = ("disruption", "eviction")
WITH_VOLUMES: Final = {"volume": "local", "claim": "made"}


@attrs.define(eq=False)
class Case:
    """One fault in one request."""

    request: str
    fault: str
    behaviour: Behaviour
    faults: list[Fault] = attrs.field(factory=list)

    @property
    def name(self) -> str:
        """The name of the pod that must be bound in the end."""
        return f"{self.request}-{self.fault}"

    @property
    def subject(self) -> str:
        """The name of the object that the faulty request is about."""
        return f"{REQUESTS[self.request].prefix}{self.name}"

    @property
    def refused(self) -> bool:
        """Whether the API server itself refuses the request, the only time that it is made."""
        return self.fault in DEFINITE_REFUSALS

    @property
    def told(self) -> tuple[int, ...]:
        """
        How often the pod's owner may be told that it is bound.

        An Event that the API server refuses is not written, unless the refusal came so late that it was repeated.
        """
        return (0, 1) if self.request == "event" and self.refused else (1,)

    @property
    def is_protected(self) -> bool:
        """Whether the API server does not let the victim go, as a policy would: it is not asked again for minutes."""
        return self.request in WITH_VICTIMS and self.fault == "422-before"

    def manifest(self) -> Object:
        """Return the pod."""
        labels, spec = {LABEL: self.request}, dict(REQUESTS[self.request].pod)
        if self.request in WITH_DEVICES:
            spec |= {"neuron": 1, "nodeSelector": {LABEL: self.request}}
        elif self.request in WITH_VICTIMS:
            spec |= {"neuron": 1, "nodeSelector": {LABEL: self.name}}
        else:
            claim = {"name": "data", "persistentVolumeClaim": {"claimName": self.name}}
            spec |= {"volumes": [claim], "nodeSelector": {LABEL: "volumes"}}
        return pod_manifest(self.name, labels=labels, annotations=KEPT_ANNOTATIONS, **spec)

    def victim(self) -> Object:
        """Return the pod that must leave."""
        spec: dict[str, Any] = {"nodeSelector": {LABEL: self.name}, "terminationGracePeriodSeconds": 0}
        return pod_manifest(self.subject, neuron=1, annotations=KEPT_ANNOTATIONS, **spec)


def cases(requests: Iterable[str] = tuple(REQUESTS), faults: Iterable[str] = tuple(FAULTS)) -> list[Case]:
    return [Case(request, fault, FAULTS[fault]) for request in requests for fault in faults]


@attrs.define(eq=False)
class CommitPath:
    """
    The cases on one cluster.

    Attributes:
        pods: by name, once all are bound or the time is over.
        scheduled: how often each pod was reported as scheduled, by its name.
    """

    api: RestClient
    proxy: Proxy
    scheduler: SchedulerProcess
    cases: Sequence[Case]
    pods: dict[str, Object] = attrs.field(factory=dict, init=False)
    scheduled: dict[str, int] = attrs.field(factory=dict, init=False)

    async def run(self) -> None:
        """Let all cases happen."""
        for case in self.cases:
            self._add_fault(case)
        await self._add_nodes()
        await self._add_storage()
        async with self._cluster():
            await self._add_victims()
            await create_all(self._create, (case.manifest() for case in self.cases))
            await self._end_waiting()
            await self._end_protected()
            await self._until_bound()
            await self._deliver_the_rest()
        await self._read_events()

    def _add_fault(self, case: Case) -> None:
        request = REQUESTS[case.request]
        if case.request == "read-back":  # the pod is bound, and the answer says that it is not
            conflict = Behaviour(Refusal(409, "Operation cannot be fulfilled"))
            case.faults.append(self.proxy.add(Fault(request_for("POST", "pods/binding", case.name), conflict)))
        matches = request_for(request.method, request.resource, case.subject)
        case.faults.append(self.proxy.add(Fault(matches, case.behaviour)))

    async def _add_nodes(self) -> None:
        nodes = [node_manifest("volumes", "m5.large", cpu=1000, pods=1000, labels={LABEL: "volumes", ZONE: "x"})]
        for request in WITH_DEVICES:
            count = sum(case.request == request for case in self.cases)
            machines, rest = divmod(count, DEVICES_OF_A_MACHINE)
            label = "later" if request == "condition" else request
            types = ["trn1.32xlarge"] * machines + ["inf2.xlarge"] * rest
            nodes += [node_manifest(f"{request}-{n}", kind, labels={LABEL: label}) for n, kind in enumerate(types)]
        for case in self.cases:
            if case.request in WITH_VICTIMS:
                nodes.append(node_manifest(case.name, "inf2.xlarge", labels={LABEL: case.name}))
        await create_all(partial(create_node, self.api), nodes)

    async def _add_storage(self) -> None:
        await add_classes(self.api)
        for case in self.cases:
            if case.request == "volume":
                await add_volume(self.api, case.name, nodeAffinity=in_zone("x"))
            if case.request in WITH_VOLUMES:
                await add_claim(self.api, case.name, WITH_VOLUMES[case.request])

    async def _add_victims(self) -> None:
        await add_priority_classes(self.api, urgent=1000)
        victims = [case.victim() for case in self.cases if case.request in WITH_VICTIMS]
        await create_all(partial(create_pod, self.api), victims)
        names = {f"default/{victim['metadata']['name']}" for victim in victims}

        def met(pods: dict[str, Object]) -> bool:
            return all(pods[name]["status"].get("phase") == "Running" for name in names)

        await self.api.wait_until(PODS, met, within=WITHIN)

    async def _create(self, manifest: Object) -> None:
        """Create a pod with a condition of another controller."""
        await create_pod(self.api, manifest)
        status = {"conditions": [{"type": KEPT_CONDITION, "status": "True", "lastTransitionTime": None}]}
        path = f"{PODS}/{manifest['metadata']['name']}/status"
        await self.api.patch(path, {"status": status}, content_type=STRATEGIC)

    async def _end_waiting(self) -> None:
        """Wait for the conditions of the pods that wait, and then let them fit."""
        waiting = {f"default/{case.name}" for case in self.cases if case.request == "condition" and not case.refused}

        def met(pods: dict[str, Object]) -> bool:
            return all(condition_of(pods[name]).get("status") == "False" for name in waiting)

        with suppress(TimeoutError):  # their cases fail
            await self.api.wait_until(PODS, met, within=WITHIN)
        for node in (await self.api.get("/api/v1/nodes", labelSelector=f"{LABEL}=later"))["items"]:
            labels = {"metadata": {"labels": {LABEL: "condition"}}}
            await self.api.patch(f"/api/v1/nodes/{node['metadata']['name']}", labels)

    async def _end_protected(self) -> None:
        """End the victims that may not be evicted, as their owners would, once that is known."""
        for case in self.cases:
            if case.is_protected:
                with anyio.move_on_after(WITHIN):
                    await case.faults[0].taken.wait()
                await self.api.delete(f"{PODS}/{case.subject}")

    async def _until_bound(self) -> None:
        wanted = {f"default/{case.name}" for case in self.cases}

        def met(pods: dict[str, Object]) -> bool:
            return wanted <= {name for name, pod in pods.items() if "nodeName" in pod["spec"]}

        with suppress(TimeoutError):  # then the cases say which pod is not
            await self.api.wait_until(PODS, met, within=WITHIN)
        self.pods = {pod["metadata"]["name"]: pod for pod in (await self.api.get(PODS))["items"]}

    async def _deliver_the_rest(self) -> None:
        """Let the requests that were held back arrive now, when all is over."""
        for case in self.cases:
            for fault in case.faults:
                if fault.behaviour.late is not Late.NEVER and fault.held is not None:
                    fault.release()
                    await fault.held.wait()

    async def _read_events(self) -> None:
        names = [case.name for case in self.cases if case.name in self.pods]
        lost = {case.name for case in self.cases if 0 in case.told}

        def count(events: dict[str, Object]) -> dict[str, int]:
            about = [event["regarding"]["name"] for event in events.values() if event["reason"] == "Scheduled"]
            return {name: about.count(name) for name in names}

        def met(events: dict[str, Object]) -> bool:
            return all(number or name in lost for name, number in count(events).items())

        with suppress(TimeoutError):
            await self.api.wait_until(EVENTS, met, within=WITHIN)
        listing = await self.api.get(EVENTS)
        self.scheduled = count({event["metadata"]["name"]: event for event in listing["items"]})

    @asynccontextmanager
    async def _cluster(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(FakeKubelet(self.api).run)
            await tasks.start(provision, self.api)
            yield
            tasks.cancel_scope.cancel()

"""Whatever becomes of one request about a placeholder, there is one as long as it is wanted, and then none."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import anyio
import attrs
import pytest

from neuron_scheduler.capacity.placeholders import manifest
from neuron_scheduler.capacity.writer import LeaderRequests, PlaceholderWriter
from neuron_scheduler.kube.http import auth
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.capacity.asked import asked
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.asking import PLACEHOLDERS, grant_capacity
from tests.end_to_end.process import until
from tests.end_to_end.workload import condition_of
from tests.faults.calls import request_for
from tests.faults.catalogue import FAULTS
from tests.faults.proxy import Fault, Late, run_proxy

REQUESTS: Final = {"create": ("POST", "pods"), "mark": ("PATCH", "pods/status"), "delete": ("DELETE", "pods")}
TIMEOUT: Final = 0.8
# What each Status means is for `capacity/test_writer`; here is what becomes of requests on the way.
MET: Final = [name for name in FAULTS if name.startswith(("422", "cut", "409-after", "delivered", "delayed"))]


@attrs.define(eq=False)
class Case:
    """
    One fault in one request.

    Attributes:
        declined: the API server's sentence, if the machine may not be asked for.
        seen: whether autoscalers saw its placeholder when all had been asked for.
        left: the reason of the condition of what was there in the end.
    """

    fault: Fault
    declined: str = ""
    seen: bool = False
    left: list[str] = attrs.field(factory=list)


@attrs.define(eq=False)
class Cases:
    """All of them by the placeholder's name; the writer tells it what became of them."""

    cases: dict[str, Case] = attrs.field(factory=dict)

    def declined(self, name: str, message: str) -> None:
        """Remember it."""
        self.cases[name].declined = message


async def reasons(api: RestClient) -> dict[str, str]:
    """Return the placeholders that are there with the reasons of their conditions."""
    pods = (await api.get(PLACEHOLDERS))["items"]
    return {each["metadata"]["name"]: condition_of(each).get("reason", "") for each in pods}


@pytest.fixture(scope="module")
async def outcome(fault_plane: ControlPlane, fault_account: Path) -> AsyncIterator[dict[str, Case]]:
    """Ask for all machines at once, withdraw them all, and deliver what was held back."""
    api = fault_plane.admin
    await grant_capacity(api)
    outcome = Cases()
    async with run_proxy(fault_plane) as proxy:
        connection = await auth.load(str(fault_account), proxy.url)
        async with Client(connection=connection) as client, anyio.create_task_group() as tasks:
            writer = PlaceholderWriter(
                requests=LeaderRequests(client=client, may_send=lambda: True, timeout=TIMEOUT),
                clock=time.monotonic,
                declined=outcome.declined,
                gone=lambda _: None,
                errors=UnexpectedErrors(),
            )
            for request, (method, resource) in REQUESTS.items():
                for fault in MET:
                    name = f"capacity-{request}-{fault}"
                    outcome.cases[name] = Case(proxy.add(Fault(request_for(method, resource, name), FAULTS[fault])))
                    writer.ask(name, manifest(asked(name), "registry.example/pause"))
            tasks.start_soon(writer.run)

            async def all_asked() -> bool:
                there = await reasons(api)
                return all(
                    name not in there if case.declined else there.get(name) == "Unschedulable"
                    for name, case in outcome.cases.items()
                )

            async def all_gone() -> bool:
                return not writer.names

            await until(all_asked)
            for name, reason in (await reasons(api)).items():
                outcome.cases[name].seen = reason == "Unschedulable"
            for name in outcome.cases:
                writer.withdraw(name)
            await until(all_gone)
            for case in outcome.cases.values():
                if case.fault.behaviour.late is not Late.NEVER and case.fault.held is not None:
                    case.fault.release()
                    await case.fault.held.wait()
            for name, reason in (await reasons(api)).items():
                outcome.cases[name].left.append(reason)
            tasks.cancel_scope.cancel()
    yield outcome.cases
    await api.delete(PLACEHOLDERS, gracePeriodSeconds=0)


@pytest.mark.parametrize("name", [f"capacity-{request}-{fault}" for request in REQUESTS for fault in MET])
async def test_a_request_that_meets_a_fault(outcome: dict[str, Case], name: str) -> None:
    """
    It is repeated until there is an answer, and a refusal takes back what had been done.

    A creation that takes effect after the deletion leaves a pod that no autoscaler sees; the watch shows it, and it is
    deleted (`machines`).
    """
    case = outcome[name]
    assert case.fault.taken.is_set()
    assert case.seen is not bool(case.declined)
    assert not case.declined or "-409" in name or "-422" in name
    late = case.fault.behaviour.late is not Late.NEVER and "-create-" in name
    assert case.left == ([""] if late and case.left else [])

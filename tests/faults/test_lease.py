"""Whatever becomes of one request for the Lease, the candidate gets it, keeps it, and gives it back for good."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

import anyio
import attrs
import pytest

from neuron_scheduler.controllers.leader_elector import LeaderElector
from neuron_scheduler.kube.http import auth
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.writes.lease import LeaseClient
from neuron_scheduler.telemetry.errors import LeaseLostError
from tests.control_plane.rest import Object
from tests.control_plane.server import ADMIN, ControlPlane
from tests.end_to_end.workload import LEASES
from tests.faults.calls import request_for
from tests.faults.catalogue import FAULTS
from tests.faults.proxy import Fault, Late, run_proxy
from tests.support.patience import PATIENCE

DEADLINE: Final = 16.0  # seconds; a request without an answer is given up after it, or after half of it
SLOWER: Final = 10  # times, the candidates' clock: so a machine that stalls loses no Lease
RETRY: Final = 1.0
REQUESTS: Final = {"create": "POST", "get": "GET", "update": "PUT"}
# What a Status says, `controllers/test_leader_elector` and the simulation show.
MET: Final = ("cut", "silence", "page", "409-after", "delivered", "delayed")
LOST: Final = [name for name in FAULTS if name.startswith(MET)]
RENEWALS: Final = 2


@attrs.define(eq=False)
class Candidate:
    """
    One candidate for a Lease of its own, whose first request of a kind meets a fault.

    Attributes:
        renewals: how often it has renewed the Lease after the fault.
        lost: why it has ended on its own.
        released: whether it has given the Lease back.
        held, left: the Lease before and after that, and after all requests that were held back have arrived.
    """

    name: str
    fault: Fault
    elector: LeaderElector
    renewals: int = 0
    lost: str = ""
    released: bool = False
    held: Object = attrs.field(factory=dict)
    left: Object = attrs.field(factory=dict)

    async def run(self) -> None:
        """Take the Lease, and hold it until it has been renewed some times after the fault."""
        with anyio.move_on_after(2 * PATIENCE):
            await self.elector.acquire()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._hold, tasks.cancel_scope)
                await self.fault.taken.wait()
                while self.renewals < RENEWALS:
                    before = self.elector.renewed_at
                    while self.elector.renewed_at == before:  # noqa: ASYNC110 - the elector has no event for it
                        await anyio.sleep(RETRY / 10)
                    self.renewals += 1
                tasks.cancel_scope.cancel()

    async def _hold(self, scope: anyio.CancelScope) -> None:
        try:
            await self.elector.hold()
        except LeaseLostError as error:
            self.lost = str(error)
            scope.cancel()


@pytest.fixture(scope="module")
async def candidates(
    fault_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[str, Candidate]]:
    """Run all candidates at once, let all of them give their Leases back, and deliver what was held back."""
    kubeconfig = fault_plane.kubeconfig(tmp_path_factory.mktemp("lease") / "kubeconfig", token=ADMIN.token)
    everybody: dict[str, Candidate] = {}
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(run_proxy(fault_plane))
        connection = await auth.load(str(kubeconfig), proxy.url)
        for request, method in REQUESTS.items():
            for fault in LOST:
                name = f"{request}-{fault}"
                client = await stack.enter_async_context(Client(connection=connection))
                elector = LeaderElector(
                    leases=LeaseClient(client=client, name=name),
                    lease_duration=DEADLINE + 2,
                    renew_deadline=DEADLINE,
                    retry_period=RETRY,
                    clock=lambda: time.monotonic() / SLOWER,
                )
                faulty = proxy.add(Fault(request_for(method, "leases", name), FAULTS[fault]))
                everybody[name] = Candidate(name, faulty, elector)
        async with anyio.create_task_group() as tasks:
            for candidate in everybody.values():
                tasks.start_soon(candidate.run)
        for candidate in everybody.values():
            candidate.held = await fault_plane.admin.get(f"{LEASES}/{candidate.name}")
            candidate.released = await candidate.elector.release()
            if candidate.fault.behaviour.late is not Late.NEVER and candidate.fault.held is not None:
                candidate.fault.release()
                await candidate.fault.held.wait()
            candidate.left = await fault_plane.admin.get(f"{LEASES}/{candidate.name}")
        yield everybody
    for name in everybody:
        await fault_plane.admin.delete(f"{LEASES}/{name}")


@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize("request_name", REQUESTS)
async def test_a_lease_whose_request_meets_a_fault(
    candidates: dict[str, Candidate], request_name: str, fault: str
) -> None:
    """It is held without a break and renewed; once it is given back, no late request takes it again."""
    candidate = candidates[f"{request_name}-{fault}"]
    assert candidate.fault.taken.is_set(), "the fault was met"
    assert (candidate.lost, candidate.renewals) == ("", RENEWALS)
    assert candidate.held["spec"]["holderIdentity"] == candidate.elector.identity
    assert candidate.held["spec"]["leaseTransitions"] == 0
    assert candidate.released
    assert candidate.left["spec"]["holderIdentity"] == ""

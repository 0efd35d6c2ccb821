"""Others who may write the Lease change all of it but its holder: the leader keeps it, and binds."""

from pathlib import Path
from typing import Any, Final

from tests.control_plane.rest import Object
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ACQUIRED, run_scheduler
from tests.end_to_end.workload import LEASE
from tests.faults.waves import waves

NAMESPACE, _, NAME = LEASE.removeprefix("/apis/coordination.k8s.io/v1/namespaces/").partition("/leases/")
EDITS: Final[tuple[Object, ...]] = (
    {"spec": {"leaseTransitions": None, "leaseDurationSeconds": None, "acquireTime": None, "renewTime": None}},
    {"spec": {"strategy": "OldestEmulationVersion", "preferredHolder": "somebody else"}},
    {"metadata": {"annotations": {"example.com/long": "x" * 200_000}, "labels": {"example.com/a": "b"}}},
    {"metadata": {"finalizers": ["example.com/kept"]}},
)


async def test_a_leader_whose_lease_is_edited(fault_plane: ControlPlane, fault_account: Path) -> None:
    """Each edit is followed by renewals, and pods are bound all the time."""
    api = fault_plane.admin
    async with waves(api) as wave, run_scheduler(fault_account, "--leader-elect-retry-period=200ms") as scheduler:
        await scheduler.line(ACQUIRED)
        holder = (await api.get(LEASE))["spec"]["holderIdentity"]
        for edit in (*EDITS, {"metadata": {"finalizers": None}}):
            edited = await api.patch(LEASE, edit)
            await wave.begin()
            await wave.bound()

            def renewed(leases: dict[str, Any], edited: Object = edited) -> bool:
                return bool(
                    leases[f"{NAMESPACE}/{NAME}"]["metadata"]["resourceVersion"]
                    != edited["metadata"]["resourceVersion"]
                )

            await api.wait_until(LEASE.rpartition("/")[0], renewed)
            lease = await api.get(LEASE)
            assert lease["spec"]["holderIdentity"] == holder
            assert lease["metadata"].get("finalizers") == (edited["metadata"].get("finalizers"))
        assert await wave.judged() == []
        assert await scheduler.stop() == 0
        assert (await api.get(LEASE))["spec"]["holderIdentity"] == ""
    assert "Traceback" not in scheduler.log

"""The rights in `manifests/` are exactly what the process calls, by the API server's own audit log."""

from pathlib import Path

from neuron_scheduler.kube.rights import SCHEDULING, Right, leading
from tests.control_plane.objects import create_pod, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ACQUIRED, BOUND, run_scheduler, until
from tests.end_to_end.proxy import Fault, binding_of, run_proxy
from tests.end_to_end.rights import audited, covers, granted
from tests.end_to_end.workload import add_nodes, events_of, placed, refused

FOLLOWING = Right("watch", "leases", "coordination.k8s.io", "kube-system", "my-scheduler")


def test_the_manifest_says_what_the_process_asks_for_at_its_start() -> None:
    """`manifests/rbac.yaml` and the list that is checked with SelfSubjectAccessReviews are the same."""
    assert granted() == {*SCHEDULING, *leading("kube-system", "my-scheduler")}


async def test_the_process_calls_exactly_what_it_may(
    plane: ControlPlane, account: Path, empty: RestClient, audit_log: Path
) -> None:
    """
    No request is refused or unforeseen, and no right is left unused, after a workload with all that can happen.

    All that can happen: binding, refusal, a series of Events, a Binding whose answer was lost, waiting for the Lease.
    """
    begin = len(audited(audit_log))

    async def second_follows() -> bool:
        return any(covers(FOLLOWING, request) for request in audited(audit_log)[begin:])

    async with run_proxy(plane) as proxy, run_scheduler(account, f"--master={proxy.url}") as first:
        await first.line(ACQUIRED)
        await add_nodes(first, empty, trn1="trn1.32xlarge")
        lost = proxy.add(Fault(binding_of("one"), lose_answer=True))
        await placed(empty, "one", neuron=1)
        assert (await lost.answered())[0] == 201
        await first.line(BOUND, 'pod="default/one"')
        # The first condition does not get through: the pod stays the same version, and the Event is counted on.
        proxy.add(Fault(lambda method, path: method == "PATCH" and path.endswith("/pods/seven/status"), refuse=404))
        await create_pod(empty, pod_manifest("seven", neuron=7))
        await events_of(empty, "seven", "FailedScheduling")
        changed = {"spec": {"unschedulable": True}, "metadata": {"labels": {"changed": "yes"}}}
        await empty.patch("/api/v1/nodes/trn1", changed)
        (event,) = await events_of(empty, "seven", "FailedScheduling", met=lambda event: bool(event.get("series")))
        assert event["series"]["count"] == 2
        await refused(empty, "seven", saying="unschedulable")
        async with run_scheduler(account) as second:
            await until(second_follows)
            assert await first.stop() == 0
            await second.line(ACQUIRED)
            assert await second.stop() == 0
    rights, requests = granted(), audited(audit_log)
    unforeseen = [r["requestURI"] for r in requests if not (is_review(r) or any(covers(right, r) for right in rights))]
    assert not unforeseen, "by this test or any before it"
    mine = requests[begin:]
    assert not [str(right) for right in rights if not any(covers(right, r) for r in mine)], "never used"
    assert not [r["requestURI"] for r in mine if r["responseStatus"]["code"] == 403]


def is_review(request: Object) -> bool:
    """Tell whether a request asks for one's own rights, which is everybody's right."""
    return bool(request["objectRef"]["resource"] == "selfsubjectaccessreviews")

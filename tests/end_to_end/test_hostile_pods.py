"""A pod that asks for too much, as large as the API server accepts: its message says why, and no pod waits for it."""

from neuron_scheduler.kube.objects.pod_limits import MOST
from tests.control_plane.objects import create_pod, pod_manifest
from tests.control_plane.rest import RestClient
from tests.end_to_end.process import SchedulerProcess
from tests.end_to_end.workload import add_nodes, placed, refused

TERMS = "pod affinity and anti-affinity terms and topology spread constraints"


async def test_nine_thousand_topology_keys(scheduler: SchedulerProcess, api: RestClient) -> None:
    """The message names the limit and what to do, no autoscaler buys a node for it, and other pods are bound."""
    await add_nodes(scheduler, api, trn1="trn1.32xlarge")
    terms = [{"topologyKey": f"key-{i}", "labelSelector": {"matchLabels": {"app": "web"}}} for i in range(9000)]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    for i in range(6):
        await create_pod(api, pod_manifest(f"hostile-{i}", neuron=1, affinity=affinity))
    await placed(api, "ordinary", neuron=1)
    condition = await refused(
        api,
        "another",
        neuron=1,
        affinity=affinity,
        saying=f"pod has 9000 {TERMS}; this scheduler takes at most {MOST[TERMS]}",
    )
    assert condition["reason"] == "SchedulerError"

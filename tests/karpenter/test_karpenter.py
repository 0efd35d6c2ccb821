"""What the real Karpenter does, on which capacity requests rely: no scheduler of ours runs in these tests."""

from typing import Any

from tests.control_plane.objects import bind, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.end_to_end.asking import fragment
from tests.karpenter.cloud import PRICES, TYPE, node_pool
from tests.karpenter.karpenter import Karpenter, unschedulable
from tests.karpenter.kubelets import KARPENTERS, NODES

POOL = node_pool("neuron", list(PRICES))


def whole_machine(instance_type: str = "trn1.32xlarge", *, cpu: str, neuron: int = 16) -> Object:
    """Return a pod that asks for all devices of a machine of a type, and that nobody places."""
    wanted = {"key": TYPE, "operator": "In", "values": [instance_type]}
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    }
    requests, affinity = {"cpu": cpu}, {"nodeAffinity": required}
    return pod_manifest("machine", neuron=neuron, requests=requests, scheduler_name="nobody", affinity=affinity)


def waiting(name: str, *, neuron: int = 4, cpu: str = "2", **fields: Any) -> Object:
    return pod_manifest(name, neuron=neuron, requests={"cpu": cpu}, scheduler_name="refuses", **fields)


async def machine(api: RestClient) -> Object:
    """Return the first node of Karpenter's once it is initialised."""

    def initialised(node: Object) -> bool:
        return bool(node["metadata"]["labels"].get("karpenter.sh/initialized") == "true")

    nodes = await api.wait_until(NODES, lambda nodes: any(map(initialised, nodes.values())), labelSelector=KARPENTERS)
    return next(filter(initialised, nodes.values()))


async def test_a_hidden_pod_gets_nothing_and_a_whole_machine_is_bought(
    karpenter_api: RestClient, karpenter: Karpenter
) -> None:
    """
    A pod that fits by count gets no machine; a pod that asks for a whole one does, once, as long as nothing is bound.

    The whole one has more cpu, and so it is counted onto its machine before the hidden pod, whatever the names say.
    """
    await karpenter_api.apply(POOL)
    await fragment(karpenter_api, "zz-fragmented")
    hidden = await unschedulable(karpenter_api, waiting("hidden"))
    assert await karpenter.bought() == []
    await unschedulable(karpenter_api, whole_machine(cpu="2001m"))
    bought = await machine(karpenter_api)
    assert bought["status"]["allocatable"]["aws.amazon.com/neuron"] == "16"
    assert "taints" not in bought["spec"]
    assert await karpenter.bought() == ["trn1.32xlarge"]
    await bind(karpenter_api, hidden, bought["metadata"]["name"])
    assert await karpenter.bought() == ["trn1.32xlarge"] * 2  # who asks must go before the pod is bound


async def test_a_pod_with_more_cpu_takes_the_place_of_the_one_that_asked(
    karpenter_api: RestClient, karpenter: Karpenter
) -> None:
    """If a hidden pod has more cpu than the whole one, it is counted onto the new machine, and a second is bought."""
    await karpenter_api.apply(POOL)
    await fragment(karpenter_api, "zz-fragmented")
    await unschedulable(karpenter_api, waiting("hidden"))
    await unschedulable(karpenter_api, whole_machine(cpu="1"))
    await machine(karpenter_api)
    assert await karpenter.bought() == ["trn1.32xlarge"] * 2

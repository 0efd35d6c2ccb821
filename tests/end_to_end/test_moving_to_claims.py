"""
docs/claims.md: a node group moves from counts to claims, to kube-scheduler, and back, as the page says, to the end.

AWS's plugin and driver are what they show to the API server: the amounts of a node, and a slice. The scheduler is
installed with kubectl, and runs as its Deployment says, with the component's flag, rights and policy.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.control_plane.objects import MACHINES, NEURON, NEURONCORE, create_pod, pod_manifest
from tests.control_plane.rest import Object
from tests.control_plane.server import ControlPlane
from tests.end_to_end.test_migrating import Site, by_default, cluster, fenced_plane  # noqa: F401 - a fixture
from tests.end_to_end.test_resource_claims import CLAIMS, GROUP, TEMPLATES, claiming
from tests.end_to_end.workload import PODS, held_cores, on, refused
from tests.simulation.oracles.claims import devices_of
from tests.support.device_objects import devices, neuron_class, neuron_slice, template
from tests.support.documented_commands import run_by

pytestmark = [pytest.mark.control_plane, pytest.mark.timeout(300)]

THIS: Final = "tests/end_to_end/test_moving_to_claims.py"
TYPE: Final = "trn1.32xlarge"
NODE: Final = "trn1"
"""The group: the one node of that type."""
APPLY: Final = """
kubectl apply -k manifests/
kubectl rollout status --namespace kube-system --timeout=60s deployment/my-scheduler
"""
TURN: Final = f"sed -i 's,^components: .*,components: [{{}}],' manifests/kustomization.yaml{APPLY}"
TURN_ON, TURN_OFF = TURN.format("components/claims"), TURN.format("")
INSTALL: Final = f"""
kubectl apply --filename k8s-neuron-device-plugin.yml
kubectl patch daemonset --namespace kube-system neuron-device-plugin --type merge \
    --patch '{{"spec": {{"template": {{"spec": {{"nodeSelector": {{"devices": "counts"}}}}}}}}}}'
kubectl label nodes --all devices=counts
kubectl rollout status --namespace kube-system --timeout=60s daemonset/neuron-device-plugin
kubectl apply -k manifests/lease-watch{APPLY}
"""
DRAIN: Final = f"kubectl drain {NODE} --ignore-daemonsets --delete-emptydir-data"
UNCORDON: Final = f"kubectl uncordon {NODE}"


async def found(site: Site) -> Mapping[str, Object]:
    """
    Return what `neuron-scheduler check` finds, by code: all that needs action, and all of claims.

    Not that the Lease's holder is no pod: the processes of the stand-in kubelet have the name of this machine.
    """
    report = json.loads(await site.shell.output("neuron-scheduler check -o json || [ $? = 1 ]"))
    return {
        each["code"]: each
        for each in report["findings"]
        if (each["severity"] not in ("ok", "note") and each["code"] != "lease-held-by-another")
        or each["code"].startswith("claims")
    }


async def give_counts(site: Site, *, is_on: bool) -> None:
    """Put the device plugin on the node, or take it off; its kubelet says how many devices there are then."""
    await site.shell.output(f"kubectl label node {NODE} devices{'=counts' if is_on else '-'}")
    _, _, number, cores = MACHINES[TYPE]
    amounts = {NEURON: str(number * is_on), NEURONCORE: str(cores * is_on)}
    await site.api.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"capacity": amounts, "allocatable": amounts}})


async def serve(site: Site, pod: Object) -> dict[str, str]:
    """Let the Deployment have pods like this one, and return the node of each by uid once both run, without others."""
    spec = pod["spec"]
    labels = {"app": "serve"}
    fields = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "serve"}}
    await site.api.apply(workload | {"spec": {"replicas": 2, **fields}})

    def is_like_it(pod: Object) -> bool:
        same = all(pod["spec"].get(key) == spec.get(key) for key in ("schedulerName", "resourceClaims"))
        return same and pod["status"]["phase"] == "Running"

    def met(pods: Mapping[str, Object]) -> bool:
        mine = of_the_workload(pods)
        return len(mine) == 2 and all(map(is_like_it, mine))

    pods = of_the_workload(await site.api.wait_until(PODS, met, within=60))
    return {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods}


def of_the_workload(pods: Mapping[str, Object]) -> list[Object]:
    return [pod for pod in pods.values() if pod["metadata"].get("labels", {}).get("app") == "serve"]


async def waits(site: Site, *, saying: str) -> None:
    """Wait until a pod of the Deployment waits, and `neuron-scheduler why` says so of it."""

    def waiting(pods: Mapping[str, Object]) -> list[str]:
        return [pod["metadata"]["name"] for pod in of_the_workload(pods) if "nodeName" not in pod["spec"]]

    name, *_ = waiting(await site.api.wait_until(PODS, lambda pods: bool(waiting(pods))))
    assert saying in " ".join((await site.shell.output(f"neuron-scheduler why {name}", code=1)).split())


async def claims_have(site: Site, count: int) -> None:
    """Wait until claims have so many devices; none has one that another has."""

    def met(claims: Mapping[str, Object]) -> bool:
        lists = [devices_of(claim) for claim in claims.values()]
        assert len(frozenset[object]().union(*lists)) == sum(map(len, lists))
        return sum(map(len, lists)) == count

    await site.api.wait_until(CLAIMS, met)


async def test_over_and_back(fenced_plane: ControlPlane, tmp_path: Path) -> None:  # noqa: F811 - a fixture
    """From counts to claims; to kube-scheduler when claims are turned off; to us again, and back to counts."""
    (delete_policy,) = run_by(f"{THIS}::{test_over_and_back.__name__}")
    by_counts, by_claims = pod_manifest("p", neuron=4, **on(TYPE)), claiming("p", "four")
    async with cluster(fenced_plane, tmp_path, "my-scheduler") as site:
        run = site.shell.output
        await run(INSTALL)
        await serve(site, by_counts)
        assert await found(site) == {}

        # 1. Claims are on, and the node serves counts as before, until its pods have ended, or are evicted.
        await run(TURN_ON)
        await site.bound(await site.create(pod_manifest("ends", neuron=4, **on(TYPE))))
        assert await found(site) == {}
        await site.api.delete(f"{PODS}/ends")
        await run(DRAIN)

        # 2. AWS's driver comes; as long as the plugin is there, too, no new pod with Neuron does.
        await site.api.post(f"{GROUP}/deviceclasses", neuron_class())
        await site.api.post(TEMPLATES, template("four", devices(4, 4)))
        await site.api.post(f"{GROUP}/resourceslices", neuron_slice(NODE))
        await run(UNCORDON)
        assert (await found(site))["nodes-with-counts-and-claims"]["objects"] == [NODE]
        await waits(site, saying="both by counts and by claims")
        await give_counts(site, is_on=False)

        # 3. No node has both, and the workload gets claims.
        assert (await found(site)).keys() == {"claims"}
        await waits(site, saying="by claims only")
        ours = await serve(site, by_claims)
        await claims_have(site, 8)

        # The policy keeps kube-scheduler off until claims are off, and it is deleted; what runs, runs on.
        await create_pod(site.api, claiming("theirs", "four", scheduler_name="default-scheduler"))
        await refused(site.api, "theirs", saying="set its schedulerName in the pod")
        await run(TURN_OFF)
        assert (await found(site)).keys() == {"claims-off", "claims-policy-left"}
        await site.run(delete_policy)
        await site.api.wait_for(f"{PODS}/theirs", lambda pod: pod["status"]["phase"] == "Running", within=60)
        assert (await found(site)).keys() == {"claims-off"}
        assert await serve(site, by_claims) == ours
        await serve(site, by_default(by_claims))
        await claims_have(site, 12)

        # On again: what kube-scheduler gave stays, and the workload comes back to us.
        await run(TURN_ON)
        assert len((await found(site))["claims-of-other-schedulers"]["objects"]) == 3
        await serve(site, by_claims)
        await site.api.delete(f"{PODS}/theirs")

        # Back is the same.
        await run(DRAIN)
        await site.api.delete(f"{GROUP}/resourceslices/{NODE}")
        await give_counts(site, is_on=True)
        await run(UNCORDON)
        assert await found(site) == {}
        await waits(site, saying="by counts only")
        await serve(site, by_counts)
        held_cores((await site.api.get(PODS))["items"], {NODE: TYPE})
        await run(TURN_OFF)
        await run((await found(site))["claims-policy-left"]["command"])
        assert await found(site) == {}

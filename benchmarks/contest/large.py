"""
A very large fleet on a real API server: this scheduler, the bare Binding loop and kube-scheduler one after the other.

Run as `python -m benchmarks.contest.large [--nodes 100000] [--pods 5000] [--real] [--contenders ours ...] [--group
N]`. With `--real` nodes are as Amazon EKS shows them (9 kB: labels, conditions, 25 images), and each runs a pod; else
they have 1 kB and run none. Prints for each contender the seconds from its start to the first Binding, the pods a
second after it, its CPU until the last Binding and its peak memory; then how long the running leader takes to answer
questions about the fleet and about a refused pod, while pods are bound. With `--group 20000` only: how long such a
group takes, and how long single pods of another namespace wait meanwhile. Compare the ratios of one run.
"""

import argparse
import time
from functools import partial
from itertools import count
from typing import Final

import aiohttp
import anyio
import yaml

from benchmarks.contest import workloads
from benchmarks.contest.arena import MANIFESTS, Arena, run_arena
from benchmarks.contest.contenders import CONTENDERS, ours
from benchmarks.contest.observer import Observer
from benchmarks.contest.workloads import WORKLOADS
from tests.control_plane.objects import create_all, create_pod, pod_manifest
from tests.control_plane.rest import Object
from tests.control_plane.server import ADMIN

LONGEST_START: Final = 300.0
LONGEST_PAUSE: Final = 60.0
IMAGES: Final = 25
TYPES: Final = 16  # groups of nodes, each with images of its own
QUESTIONS: Final = ("/v1/fleet", "/v1/why?namespace=default&pod=refused", "/v1/why?namespace=default&pod=member-0")
RIGHTS: Final = MANIFESTS.parent / "components" / "questions" / "rbac.yaml"
REFUSED: Final = "refused"
MEMBERS: Final = 669  # of a refused group
GROUP: Final = "pod-group.scheduling.sigs.k8s.io/"
OTHER: Final = "other"


def real_node(number: int) -> Object:
    """Return a node with the labels, conditions and images that Amazon EKS and its kubelet write."""
    node, group, zone = workloads.node(number), number % TYPES, f"us-west-2{'abc'[number % 3]}"
    labels = {f"example.com/label-{key}": f"value-{number // (key + 1) % (key + 1)}" for key in range(12)}
    layers = {f"topology.k8s.aws/network-node-layer-{layer}": f"nn-{number >> 4 * layer:016x}" for layer in (1, 2, 3)}
    labels |= {
        workloads.ZONE: zone,
        "karpenter.sh/nodepool": f"pool-{group}",
        "eks.amazonaws.com/nodegroup": f"g{group}",
    }
    node["metadata"]["labels"] |= labels | layers | {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    node["metadata"]["annotations"] = {"csi.volume.kubernetes.io/nodeid": f'{{"ebs.csi.aws.com":"i-{number:017x}"}}'}
    node["status"]["conditions"] += [
        {"type": kind, "status": "False", "reason": f"KubeletHasNo{kind}", "message": f"kubelet has no {kind}"}
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "KernelDeadlock")
    ]
    registry = "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/image"
    node["status"]["images"] = [
        {
            "names": [f"{registry}-{image}@sha256:{image * 7919:064x}", f"{registry}-{image}:v1.{image}.0-eksbuild.1"],
            "sizeBytes": 10_000_000 + image,
        }
        for image in (*range(IMAGES - 5), *range(100 + 5 * group, 105 + 5 * group))
    ]
    return node


def running_pod(number: int) -> Object:
    """Return a small pod that is on the node with that number."""
    pod = workloads.filler(number)
    pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1", "memory": "1Gi"}
    return pod


async def _report(arena: Arena) -> None:
    """Change a node, as kubelets do all the time; five minutes without that, and lists in pages come from etcd."""
    reported = {"metadata": {"annotations": {"reported": str(time.time())}}}
    await arena.api.patch(f"/api/v1/nodes/{workloads.node_name(0)}", reported)


async def measure(arena: Arena, name: str, pods: int) -> None:
    """Let a contender bind pods that wait, and print its figures."""
    contender, workload = CONTENDERS[name].make(arena, WORKLOADS["one-shape"]), WORKLOADS["one-shape"]
    version = await arena.create_pods(workload.manifests(pods))
    observer = Observer(plane=arena.plane, on_first=lambda: None)
    await _report(arena)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(observer.run, version)
        async with contender.running():
            is_complete = await observer.wait_for(pods, start=LONGEST_START, pause=LONGEST_PAUSE)
            first, cpu, peak = (
                min(observer.bound.values(), default=0.0),
                contender.cpu_seconds(),
                contender.peak_bytes(),
            )
        tasks.cancel_scope.cancel()
    rate = len(observer.bound) / max(observer.last - first, 1e-9)
    print(
        f"{name:<16}{first - contender.started_at:>8.1f} s{rate:>8.0f} pods/s{cpu:>8.1f} s{peak >> 20:>7} MiB"
        f"{'' if is_complete else f'  ONLY {len(observer.bound)}'}",
        flush=True,
    )
    await arena.clear()


async def ask(arena: Arena, pods: int, *, cpu: str) -> None:
    """
    Ask the running leader while it binds pods, and print the seconds of each answer, and of the slowest Binding.

    The pod that is asked about, and each member of the group, requests so much cpu, which no node has free.
    """
    contender = ours(arena, arena.account, "--answer-questions")
    for manifest in yaml.safe_load_all(RIGHTS.read_text()):
        await arena.api.apply(manifest, namespace=manifest["metadata"].get("namespace", "default"))
    port = contender.metrics.rpartition(":")[2].partition("/")[0]
    group = {f"{GROUP}name": "refused", f"{GROUP}min-available": str(MEMBERS)}
    members = (pod_manifest(f"member-{n}", neuron=16, requests={"cpu": cpu}, labels=group) for n in range(MEMBERS))
    await create_all(partial(create_pod, arena.api), members)
    await create_pod(arena.api, pod_manifest(REFUSED, neuron=16, requests={"cpu": cpu}))
    version = await arena.create_pods(WORKLOADS["one-shape"].manifests(1))
    observer = Observer(plane=arena.plane, on_first=lambda: None)
    headers = {"Authorization": f"Bearer {ADMIN.token}"}
    await _report(arena)
    async with anyio.create_task_group() as tasks, aiohttp.ClientSession(headers=headers) as session:
        tasks.start_soon(observer.run, version)
        async with contender.running():
            await observer.wait_for(1, start=LONGEST_START, pause=LONGEST_PAUSE)
            for path in (*QUESTIONS, *QUESTIONS):
                created = dict[str, float]()
                async with anyio.create_task_group() as meanwhile:
                    meanwhile.start_soon(_pace, arena, created, len(observer.bound) + pods)
                    started = time.perf_counter()
                    async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                        size, took = len(await answer.read()), time.perf_counter() - started
                    meanwhile.cancel_scope.cancel()
                await anyio.sleep(2.0)
                waits = [observer.bound[pod] - at for pod, at in created.items() if pod in observer.bound]
                worst = f"a pod meanwhile {max(waits, default=0.0):.2f} s at most, of {len(waits)}"
                print(f"{path:<46}{answer.status:>4}{took:>7.2f} s{size / 1e6:>7.2f} MB; {worst}", flush=True)
        tasks.cancel_scope.cancel()
    await arena.clear()


async def _pace(arena: Arena, created: dict[str, float], first: int) -> None:
    """Create pods until cancelled, twenty a second; note when each was asked for."""
    number = first
    while True:
        created[workloads.pod_name(number)] = time.perf_counter()
        await create_pod(arena.api, WORKLOADS["one-shape"].pod(number))
        number += 1
        await anyio.sleep(0.05)


async def place_group(arena: Arena, size: int) -> None:
    """Let a group come, and single pods of another namespace, twenty a second; print how long both take."""
    contender, plain = ours(arena, arena.account), WORKLOADS["one-shape"]
    group = {f"{GROUP}name": "big", f"{GROUP}min-available": str(size)}
    members = list(plain.manifests(size + 1))
    for member in members[1:]:
        member["metadata"]["labels"] = member["metadata"].get("labels", {}) | group
    await arena.api.post("/api/v1/namespaces", {"metadata": {"name": OTHER}})
    observer, seen = Observer(plane=arena.plane, on_first=lambda: None), dict[str, list[float]]()
    await _report(arena)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(observer.run, await arena.create_pods(members[:1]))
        async with contender.running():
            await observer.wait_for(1, start=LONGEST_START, pause=LONGEST_PAUSE)
            tasks.start_soon(_watch, arena, seen)
            await arena.create_pods(members[1:])
            created = time.perf_counter()
            tasks.start_soon(_pace_alone, arena)
            await observer.wait_for(2, start=LONGEST_START, pause=LONGEST_PAUSE)
            first = time.perf_counter()
            await observer.wait_for(size + 1, start=LONGEST_START, pause=LONGEST_PAUSE)
            print(f"a group of {len(observer.bound) - 1}: {first - created:.1f} s to its first Binding,", end=" ")
            print(f"{observer.last - created:.1f} s to its last")
            for name, start, end in (("placed", created, first), ("bound", first, observer.last)):
                waits = [bound - shown for shown, *rest in seen.values() for bound in rest[:1] if start <= shown < end]
                print(f"while it is {name}: {len(waits)} single pods, {max(waits, default=0.0):.2f} s at most")
        tasks.cancel_scope.cancel()


async def _watch(arena: Arena, seen: dict[str, list[float]]) -> None:
    """Note when a single pod is shown by a watch, and when it is shown with a node."""
    collection = f"/api/v1/namespaces/{OTHER}/pods"
    async for _, pod in arena.api.watch(collection, (await arena.api.get(collection))["metadata"]["resourceVersion"]):
        times = seen.setdefault(pod["metadata"]["name"], [time.perf_counter()])
        if "nodeName" in pod["spec"]:
            times.append(time.perf_counter())


async def _pace_alone(arena: Arena) -> None:
    """Create pods of another namespace until cancelled, twenty a second, whatever the API server does meanwhile."""
    async with anyio.create_task_group() as tasks:
        for number in count():
            tasks.start_soon(create_pod, arena.api, pod_manifest(f"single-{number}", namespace=OTHER, neuron=1))
            await anyio.sleep(0.05)


async def main(arguments: argparse.Namespace) -> None:
    """Run the contenders, and ask the questions."""
    node = real_node if arguments.real else workloads.node
    async with run_arena(nodes=arguments.nodes, policies=True, node=node) as arena:
        if arguments.real:
            create = partial(create_pod, arena.api)
            await create_all(create, map(running_pod, range(arguments.nodes)))
        if arguments.group:
            await place_group(arena, arguments.group)
            return
        print(f"{'contender':<16}{'first':>10}{'rate':>15}{'CPU':>10}{'memory':>11}", flush=True)
        for name in arguments.contenders:
            await measure(arena, name, arguments.pods)
        await ask(arena, arguments.pods, cpu="127500m" if arguments.real else "1000")  # one pod less, and it fits


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--pods", type=int, default=5_000)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--group", type=int, default=0)
    parser.add_argument(
        "--contenders", nargs="+", default=("ours", "binding-loop", "kube-scheduler"), choices=CONTENDERS
    )
    anyio.run(main, parser.parse_args(), backend_options={"use_uvloop": True})

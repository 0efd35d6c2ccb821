"""
How long the search for victims takes, alone, on nodes full of pods of lower priority.

Run as `python -m benchmarks.preemption [--nodes 1000 5000] [--pods 60] [--members 64 400]`. The fleet is full of pods
of mixed sizes and priorities, a third of them under budgets that allow no disruption or few. Each search is carried
out: the victims leave and the pod takes their place, so the next search has indexes that must catch up. Prints
milliseconds of CPU, which other processes do not disturb: of the first search, of the others, and the longest step in
which nothing else runs (the executor pauses between steps). Then the same for groups of members that take a machine
each, after they were refused.
"""

import argparse
import gc
import itertools
import random
import statistics

import attrs

from benchmarks.decision import SIZES, fleet, stepped
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.neuron_request import neuron_request
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_DEVICE, Container, Resources
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from neuron_scheduler.neuron.topology import Placement, place
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile, default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, schedule_pod
from neuron_scheduler.scheduling.groups.gang import gang_of
from neuron_scheduler.scheduling.groups.plan import plan_group
from neuron_scheduler.scheduling.groups.preemption import GroupPreemption, search_for_group
from neuron_scheduler.scheduling.preemption.nominations import confirm
from neuron_scheduler.scheduling.preemption.search import Preemption, search
from neuron_scheduler.steps import run

APPS = 30
PRIORITIES = (-10, 0, 0, 0, 10, 100)
PREEMPTOR = 1_000
ASKED = (1, 4, 8, 16)


def pod(name: str, devices: int, **fields: object) -> Pod:
    """Return a pod that asks for devices, and 4 cpus and 8 GiB for each."""
    requests: Resources = {CPU: 2_000 * devices, MEMORY: devices << 33, NEURON_DEVICE: devices}
    neuron = neuron_request([Container("main", requests)])
    return Pod(uid=name, namespace="default", name=name, requests=requests, neuron=neuron, **fields)  # type: ignore[arg-type]  # passed on


def full(nodes: int, dice: random.Random) -> Cluster:
    """Return a cluster whose devices are all used by pods of lower priority."""
    cluster = Cluster()
    for budget in budgets():
        cluster.budgets.put(budget)
    for node in fleet(nodes):
        cluster.put_node(node)
        left = SIZES[node.labels[INSTANCE_TYPE_LABEL]][2]
        while left:
            devices = dice.choice([count for count in ASKED if count <= left])
            pod_info = pod(
                f"{node.name}-{left}",
                devices,
                node_name=node.name,
                priority=dice.choice(PRIORITIES),
                labels={"app": f"app-{dice.randrange(APPS)}"},
                started=float(dice.randrange(1_000)),
            )
            placement = _room(cluster, pod_info)
            if placement is not None:  # else a smaller one is drawn next
                cluster.assume(pod_info, placement.cores)
                left -= devices
    return cluster


def _room(cluster: Cluster, pod_info: Pod) -> Placement | None:
    node_info = cluster.node(pod_info.node_name)
    if node_info is None or node_info.machine is None or pod_info.neuron is None:
        raise AssertionError("the fleet has devices, and the pods ask for them")
    return place(node_info.machine, node_info.free_cores, pod_info.neuron)


def budgets() -> list[DisruptionBudget]:
    """Return budgets of a third of the applications."""
    return [
        DisruptionBudget(
            uid=f"pdb-{i}",
            namespace="default",
            name=f"pdb-{i}",
            selector=LabelSelector((Requirement("app", Operator.IN, (f"app-{i}",)),)),
            allowed=i % 3,
        )
        for i in range(0, APPS, 3)
    ]


def searched(cluster: Cluster, pending: Pod, profile: Profile, refused: FitError) -> tuple[list[float], Preemption]:
    """Search to the end; return the milliseconds of the steps, and the victims."""
    result, took = stepped(search(cluster, pending, profile, refused=refused))
    if not isinstance(result, Preemption):
        raise SystemExit(f"there are no victims: {result}")
    return took, result


def measure(nodes: int, pods: int) -> list[list[float]]:
    """Return the steps of the searches for so many pods, each carried out before the next."""
    dice = random.Random(1)
    cluster, profile, searches = full(nodes, dice), default_profile("my-scheduler"), []
    gc.collect()
    gc.freeze()  # as the scheduler does once it has listed everything
    for number in itertools.count():
        pending = pod(f"pending-{number}", ASKED[::-1][number % len(ASKED)], priority=PREEMPTOR)
        refused = schedule_pod(cluster, pending, profile)
        if isinstance(refused, FitError):
            measured, preemption = searched(cluster, pending, profile, refused)
            searches.append(measured)
            _carry_out(cluster, pending, profile, preemption)
        decision = schedule_pod(cluster, pending, profile)
        if not isinstance(decision, Decision) or decision.placement is None:
            raise AssertionError("the victims have made room")
        cluster.assume(attrs.evolve(pending, node_name=decision.node_name), decision.placement.cores)
        if len(searches) == pods:
            break
    return searches


def _carry_out(cluster: Cluster, pending: Pod, profile: Profile, preemption: Preemption) -> None:
    """Nominate the space, and remove the victims."""
    nomination = confirm(cluster, pending, profile, preemption)
    if nomination is None:
        raise AssertionError("nothing has changed since the search")
    cluster.nominate(preemption.node_name, nomination)
    for victim in preemption.victims.pods:
        cluster.remove_pod(victim.uid)


def measure_group(nodes: int, members: int) -> list[float]:
    """Return the steps of the search for room for a group."""
    cluster, profile = full(nodes, random.Random(1)), default_profile("my-scheduler")
    group = PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "train"), members)
    for rank in range(members):
        member = pod(f"member-{rank}", 16, priority=PREEMPTOR, group=group, rank=rank, neuron_containers=("main",))
        cluster.groups.put(member)
    gc.collect()
    gc.freeze()
    waiting = list(cluster.groups.members(group.key).values())
    run(plan_group(cluster, gang_of(cluster, waiting), profile, IndexWarmup()))
    result, took = stepped(search_for_group(cluster, gang_of(cluster, waiting), profile))
    if not isinstance(result, GroupPreemption):
        raise SystemExit(f"there is no room: {result}")
    return took


def main() -> None:
    """Print one line for each number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 5_000])
    parser.add_argument("--pods", type=int, default=60)
    parser.add_argument("--members", type=int, nargs="*", default=[64, 400])
    arguments = parser.parse_args()
    print(f"{'nodes':>7} {'first':>8} {'its step':>9} {'p50':>7} {'p99':>7} {'longest step':>13}   (ms of CPU)")
    for nodes in arguments.nodes:
        first, *following = measure(nodes, arguments.pods)
        totals = sorted(map(sum, following))
        print(
            f"{nodes:>7} {sum(first):>8.0f} {max(first):>9.1f} {statistics.median(totals):>7.1f} "
            f"{totals[len(totals) * 99 // 100]:>7.1f} {max(map(max, following)):>13.1f}"
        )
    for nodes, members in itertools.product(arguments.nodes, arguments.members):
        took = measure_group(nodes, members)
        print(f"{nodes:>7} {sum(took):>8.0f} {max(took):>9.1f}   a group of {members:,}")


if __name__ == "__main__":
    main()

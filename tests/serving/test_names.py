"""Whatever a cluster looks like, no answer names a pod that its reader may not see, in any form."""

import random
from typing import Any

import attrs
import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.pod import Pod, PodCondition
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, schedule_pod
from tests.serving.conftest import Desk
from tests.support import random_objects
from tests.support.builders import pod
from tests.support.thoroughness import examples

MINE, HIDDEN = "a", "tenant-h1dden"
MARKS = ("h1dden", "s3cret")
"""In the namespace and in the names of hidden pods and of what belongs to them."""


def some_desk(dice: random.Random) -> Desk:
    """Return a cluster in which half of the pods are hidden: bound, with unknown ids, nominated and waiting."""
    nodes = [random_objects.some_node(dice, f"n{i}") for i in range(dice.randint(1, 6))]
    desk = Desk()
    for namespace, name in ((MINE, "budget"), (HIDDEN, "s3cret-budget")):
        budget = DisruptionBudget(name, namespace, name, random_objects.WEB, allowed=dice.randint(0, 1))
        desk.cluster.budgets.put(budget)
    desk.put(nodes)
    for i in range(dice.randint(2, 20)):
        drawn = random_objects.bound_pod(dice, f"b{i}")
        desk.put(
            pods=[_owned(dice, attrs.evolve(drawn, node_name=dice.choice(nodes).name, priority=dice.choice((0, 9))), i)]
        )
    for i in range(dice.randint(1, 4)):
        waits = _owned(dice, pod(f"w{i}", devices=dice.choice((1, 2, 4, 8, 16)), priority=5), 100 + i)
        claim = "s3cret-claim" if waits.namespace == HIDDEN else "claim"
        condition = PodCondition("False", "Unschedulable", f"{claim} of {waits.key}.")
        desk.put(pods=[attrs.evolve(waits, scheduled=condition, scheduler_name="my-scheduler")])
        host = dice.choice(nodes)
        machine = machine_of(host)
        if machine is not None and dice.random() < 0.5:
            desk.cluster.nominate(
                host.name, Nomination(waits, cores=CoreMask((1 << dice.randint(1, machine.core_count)) - 1))
            )
    return desk


def _owned(dice: random.Random, of: Pod, number: int) -> Pod:
    """Return a pod of one of the two tenants."""
    hidden = dice.random() < 0.5
    name = f"s3cret-{number}" if hidden else f"p-{number}"
    return attrs.evolve(of, uid=f"u{number}", namespace=HIDDEN if hidden else MINE, name=name)


@pytest.mark.parametrize("seed", range(examples(100)))
async def test_no_answer_names_a_hidden_pod(seed: int) -> None:
    """A reader of one namespace asks everything; the administrator's answers show that there was something to hide."""
    dice = random.Random(seed)
    desk = some_desk(dice)
    asking = attrs.evolve(random_objects.pending_pod(dice, "asks"), uid="asks", namespace=MINE, name="asks", priority=7)
    asking = attrs.evolve(asking, scheduler_name="my-scheduler", node_name="")
    desk.put(pods=[asking])
    for queued in desk.queue.pods():
        decision = schedule_pod(desk.cluster, queued.pod, default_profile("my-scheduler"))
        assert isinstance(decision, Decision | FitError)
        desk.ring.note(queued.pod, decision)
    why = "/v1/why?namespace=a&pod=asks"
    targets = [f"/v1/{feed}{of}" for feed in ("fleet", "waiting", "decisions") for of in ("", f"?namespace={MINE}")]
    targets += [
        "/v1/fit?devices=4&replicas=3",
        "/v1/fit?cpu=1",
        why,
        *(f"{why}&node={n.node.name}" for n in desk.cluster.view.rows()),
    ]
    for target in targets:
        seen = found(await desk.json(target, "jane"))
        assert seen == [], target
    names = [found(await desk.json(target)) for target in targets]
    assert any(names) or not any(known.namespace == HIDDEN for known in desk._pods.values())


def found(value: Any) -> list[str]:
    """Return the texts with a mark."""
    if isinstance(value, str):
        return [value] if any(mark in value for mark in MARKS) else []
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for item in items for text in found(item)]

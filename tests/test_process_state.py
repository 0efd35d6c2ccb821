"""The state that /metrics shows is that of the parts, and is prepared in steps."""

import anyio

from neuron_scheduler.process_state import ProcessState
from neuron_scheduler.scheduling.plugins.cause import Cause
from tests.control_plane.objects import node_manifest, pod_manifest
from tests.support.wired_scheduler import NODES, WiredScheduler, names


async def test_the_state_of_a_scheduler() -> None:
    """Bound pods, waiting pods and watches are those of the parts."""
    world = WiredScheduler()
    await world.bind(names(3))
    world.deliver(world.parts.pods, "ADDED", pod_manifest("waits", neuron=16))
    world.deliver(world.parts.pods, "ADDED", pod_manifest("unknown", neuron=2, nodeName="n0"))
    now = world.parts.scheduling_loop.clock()
    state = ProcessState(world.parts, clock=lambda: now + 60)
    for _ in state.prepared():
        pass
    shown = state.read()
    assert shown.neuron_pods_waiting == {(Cause.UNTRIED, "device", "16"): 1}
    assert shown.oldest_wait["device", "16"] >= 60
    assert shown.unknown_holders_by_node == {"n0": 1}
    assert shown.watch_synced["pods"] == 0
    assert shown.watch_stale["nodes"] in (0, 1)
    assert (
        sum(shown.free_devices.values()) + sum(shown.used_devices.values()) + sum(shown.withheld_devices.values())
        == 16 * NODES
    )
    assert shown.would_fit == state.read().would_fit


async def test_tasks_are_those_of_the_event_loop() -> None:
    """A task that does not end shows."""
    state = ProcessState(WiredScheduler().parts)
    before = state.read().tasks
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep_forever)
        assert state.read().tasks == before + 1
        tasks.cancel_scope.cancel()
    assert state.read().tasks == before


async def test_pods_are_shown_as_they_were_prepared() -> None:
    """Counting 15,000 pods at once would hold up the event loop, so a scrape shows what the steps have counted."""
    world = WiredScheduler()
    state = ProcessState(world.parts)
    assert state.read().neuron_pods_waiting == {}
    world.deliver(world.parts.pods, "ADDED", pod_manifest("one", neuron=1))
    assert state.read().neuron_pods_waiting == {(Cause.UNTRIED, "device", "1"): 1}  # nothing was prepared: counted now
    assert [*state.prepared()]
    world.deliver(world.parts.pods, "ADDED", pod_manifest("two", neuron=1))
    assert state.read().neuron_pods_waiting == {(Cause.UNTRIED, "device", "1"): 1}
    assert [*state.prepared()]
    assert state.read().neuron_pods_waiting == {(Cause.UNTRIED, "device", "1"): 2}


async def test_many_nodes_with_unknown_holders_are_one_series() -> None:
    """Twenty nodes are named."""
    world = WiredScheduler()
    for number in range(30):
        world.deliver(world.parts.nodes, "ADDED", node_manifest(f"m{number}"))
        world.deliver(world.parts.pods, "ADDED", pod_manifest(f"u{number}", neuron=2, nodeName=f"m{number}"))
    by_node = ProcessState(world.parts).read().unknown_holders_by_node
    assert (len(by_node), by_node["(others)"], sum(by_node.values())) == (21, 10, 30)

"""
On standby: which nodes have joined for the leader's placeholders, so that a new leader knows what may be removed again.

The watches of pods and nodes are apart: a placeholder may be gone before its node is seen. Refuses to decide anything:
it tells the brake. CapacityBuffers are not watched, so what they ask for is not followed.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import attrs

from neuron_scheduler.capacity.machine_node import serves
from neuron_scheduler.controllers.adopted_machines import adopted_machine
from neuron_scheduler.controllers.consolidation_brake import ConsolidationBrake
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod

LATELY: Final = 30.0
"""Seconds after the deletion of a placeholder in which its node may be seen."""
MOST_GONE: Final = 64


@attrs.define(eq=False, kw_only=True)
class FollowedMachines:
    """
    What a standby sees of the leader's requests.

    Attributes:
        clock: seconds that never jump.
    """

    brake: ConsolidationBrake
    clock: Callable[[], float]
    _gone: deque[tuple[Pod, float]] = attrs.field(factory=lambda: deque(maxlen=MOST_GONE), init=False)  # with when

    def gone(self, placeholder: Pod) -> None:
        """Note that a placeholder is gone."""
        self._gone.append((placeholder, self.clock()))

    def look_at(self, node: Node, placeholders: Iterable[Pod]) -> None:
        """Tell the brake of a node that has joined for one of the placeholders, or for one that is gone since then."""
        lately = [placeholder for placeholder, at in self._gone if self.clock() - at < LATELY]
        for placeholder in (*placeholders, *lately):
            machine = adopted_machine(placeholder) if node.created > placeholder.created else None
            if machine is not None and serves(node, machine.need):
                self.brake.came(node.name, machine.owner, machine.need)

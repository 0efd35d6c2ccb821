"""
An autoscaler that counts, written from Karpenter's source and without a line of the package's.

Pods in descending order of cpu, then memory, then age; each on the first existing node by name that has enough of
everything, else on a machine of this round, else on a new one. A machine keeps all instance types that would hold its
pods, and the one with the fewest devices is bought. Pods and nodes are plain amounts: `devices`, `cpu`, a set of types.
"""

import attrs


@attrs.frozen
class Wish:
    """
    A pod that the autoscaler sees.

    Attributes:
        types: the instance types that it allows; empty for any.
        placeholder: whether it asks for a whole machine.
    """

    name: str
    devices: int
    cpu: int
    age: float
    types: frozenset[str] = frozenset()
    placeholder: bool = False


@attrs.define
class Machine:
    """
    A node, or a machine on its way, with what is free by count.

    Attributes:
        wishes: what was counted onto it in the round in which it was bought.
    """

    name: str
    type: str
    devices: int
    cpu: int
    wishes: tuple[Wish, ...] = ()


@attrs.frozen
class InstanceType:
    """What can be bought."""

    name: str
    devices: int
    cpu: int


@attrs.define
class _Claim:
    types: list[InstanceType]
    wishes: list[Wish]

    def takes(self, wish: Wish) -> bool:
        """Keep the types that hold the wish as well; refuse it if none does."""
        wishes = [*self.wishes, wish]
        types = [
            each
            for each in self.types
            if (not wish.types or each.name in wish.types)
            and each.devices >= sum(w.devices for w in wishes)
            and each.cpu >= sum(w.cpu for w in wishes)
        ]
        if types:
            self.types, self.wishes = types, wishes
        return bool(types)


def bought(
    wishes: list[Wish], nodes: list[Machine], on_their_way: list[Machine], offered: list[InstanceType]
) -> list[Machine]:
    """Return the machines that a round buys; machines on their way count as nodes, after those that are there."""
    existing = [attrs.evolve(machine) for machine in (*sorted(nodes, key=lambda m: m.name), *on_their_way)]
    claims: list[_Claim] = []
    for wish in sorted(wishes, key=lambda w: (-w.cpu, w.age, w.name)):
        home = next((m for m in existing if _fits(wish, m)), None)
        if home is not None:
            home.devices -= wish.devices
            home.cpu -= wish.cpu
            continue
        if not any(claim.takes(wish) for claim in sorted(claims, key=lambda c: len(c.wishes))):
            fresh = _Claim(list(offered), [])
            if fresh.takes(wish):
                claims.append(fresh)
    cheapest = [(min(claim.types, key=lambda t: (t.devices, t.name)), claim) for claim in claims]
    return [Machine("", each.name, each.devices, each.cpu, tuple(claim.wishes)) for each, claim in cheapest]


def _fits(wish: Wish, machine: Machine) -> bool:
    allowed = not wish.types or machine.type in wish.types
    return allowed and wish.devices <= machine.devices and wish.cpu <= machine.cpu

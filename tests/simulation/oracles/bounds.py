"""
Memory, tasks, log lines, requests and Events stay in proportion to what there is to do.

Bounds are generous: they find what grows without end and what turns without a pause, not what could be a little
cheaper. What remembers pods or nodes that have been gone for long is found by their uids or names, in any part of a
replica.
"""

from collections import Counter, deque
from collections.abc import Iterator, Set as AbstractSet
from typing import Any, Final

import attrs

from tests.simulation.oracles.change import Change, Oracle, named

MINUTE: Final = 60.0
FORGOTTEN: Final = 30.0
"""Seconds after which nothing needs to remember a pod or a node that is gone."""
_OF_PACKAGE: Final = "neuron_scheduler"
_MOST_DEEP: Final = 12
_LAZY: Final = frozenset({"_changes", "_by_definition", "bound_at"})
"""
Fields that are cleared later: the log of changed rows when it is full, an idle index when it is used or dropped, a
node's Bindings at the next Binding there.
"""
_CONTAINERS: Final = (dict, list, set, frozenset, deque, tuple)


@attrs.define(eq=False, kw_only=True)
class Bounds(Oracle):
    """
    Counts.

    Attributes:
        most_lines: of one replica's log in a minute, beside one for each committed change.
        most_requests: of one replica in a minute, beside five for each committed change.
        most_events: writes of Events about one pod in a minute.
        most_tasks: of one replica, beside one for each Binding on its way.
        most_remembered: pods and nodes gone for long that one container of a replica may still have.
    """

    most_lines: int = 300
    most_requests: int = 600
    most_events: int = 30
    most_tasks: int = 136
    most_remembered: int = 0
    _counts: dict[int, Counter[tuple[str, str]]] = attrs.field(factory=dict)  # by the minute
    _gone: dict[str, float] = attrs.field(factory=dict)  # pods by uid and by name
    _gone_nodes: dict[str, float] = attrs.field(factory=dict)  # by name
    _reported: set[tuple[str, str]] = attrs.field(factory=set)

    def changed(self, change: Change) -> None:
        """Count a change, and remember when pods and nodes are gone."""
        self._count(change.at, "changes", "")
        if change.kind == "Pod" and change.after is None:
            self._gone |= dict.fromkeys((change.uid, named(change.object)), change.at)
        elif change.kind == "Pod" and change.previous is None:
            self._gone.pop(named(change.object), None)
        elif change.kind == "Node" and change.after is None:
            self._gone_nodes[change.key[1]] = change.at
        elif change.kind == "Node":
            self._gone_nodes.pop(change.key[1], None)
        elif change.kind == "Event":
            about = change.object.get("involvedObject") or change.object.get("regarding") or {}
            self._count(change.at, "Events", f"{about.get('namespace')}/{about.get('name')}")

    def logged(self, now: float, replica: str) -> None:
        self._count(now, "log lines", replica)

    def requested(self, now: float, replica: str) -> None:
        self._count(now, "requests", replica)

    def _count(self, now: float, what: str, who: str) -> None:
        minute = self._counts.setdefault(int(now // MINUTE), Counter())
        minute[what, who] += 1
        changes = minute["changes", ""]
        most = {
            "log lines": self.most_lines + changes,
            "requests": self.most_requests + 5 * changes,
            "Events": self.most_events,
        }.get(what)
        if most is not None and minute[what, who] > most and (what, who) not in self._reported:
            self._reported.add((what, who))
            self.violated(f"{who}: {minute[what, who]} {what} in a minute, with {changes} changes of the cluster")

    def tasks(self, replica: str, count: int, bindings: int) -> None:
        if count > self.most_tasks + bindings and ("tasks", replica) not in self._reported:
            self._reported.add(("tasks", replica))
            self.violated(f"{replica}: {count} tasks, with {bindings} Bindings on their way")

    def remembered(self, replica: str, now: float, root: object, in_doubt: AbstractSet[str] = frozenset()) -> None:
        """
        Look in all parts of a replica for pods that are gone for long, and in their tables for nodes.

        `in_doubt` are the nodes of Bindings in doubt: these nodes may be gone.
        """
        pods, nodes = (
            {key for key, at in gone.items() if now - at > FORGOTTEN} for gone in (self._gone, self._gone_nodes)
        )
        nodes -= in_doubt
        if not pods | nodes:
            return
        for path, container in containers(root):
            gone = pods | nodes if isinstance(container, dict) else pods  # a pod's selector may name a node
            count = sum(1 for key in container if isinstance(key, str) and key in gone)
            if count > self.most_remembered:
                self.violated(f"{replica}: {path} still has {count} of {len(gone)} objects that are gone for long")


def containers(root: object) -> Iterator[tuple[str, Any]]:
    """Yield each container of strings that a package's object has in it, with its path."""
    seen: set[int] = set()
    waiting: deque[tuple[str, object, int]] = deque([("parts", root, 0)])
    while waiting:
        path, value, depth = waiting.popleft()
        if id(value) in seen or depth > _MOST_DEEP:
            continue
        seen.add(id(value))
        if isinstance(value, _CONTAINERS):
            yield path, value
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            waiting.extend((f"{path}[{i}]", item, depth + 1) for i, (_, item) in enumerate(inner) if _is_thing(item))
        elif _is_thing(value):
            waiting.extend((f"{path}.{name}", inner, depth + 1) for name, inner in _fields(value))


def _is_thing(value: object) -> bool:
    """Return whether a value may have containers of a part: values of the model are not parts."""
    module = type(value).__module__
    return isinstance(value, _CONTAINERS) or (
        module.startswith(_OF_PACKAGE) and not module.startswith((f"{_OF_PACKAGE}.model", f"{_OF_PACKAGE}.settings"))
    )


def _fields(value: object) -> Iterator[tuple[str, object]]:
    names = [*getattr(value, "__dict__", {}), *(s for c in type(value).__mro__ for s in getattr(c, "__slots__", ()))]
    for name in dict.fromkeys(names):
        if name not in _LAZY | {"__weakref__", "__dict__"} and (inner := getattr(value, name, None)) is not None:
            yield name, inner

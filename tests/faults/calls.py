"""One request as a fault sees it: what is asked, and about which object. Refuses to know what becomes of it."""

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias

import attrs

SUBRESOURCES: Final = frozenset({"binding", "status"})
PLURALS: Final = frozenset(
    {
        *("pods", "events", "leases", "nodes", "serviceaccounts"),
        *("persistentvolumes", "persistentvolumeclaims", "resourceclaims"),
    }
)


@attrs.frozen
class Call:
    """
    A request.

    Attributes:
        query: the parameters; of a repeated one the last.
        agent: who sends it, from the header User-Agent.
    """

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes
    agent: str = ""

    @cached_property
    def resource(self) -> str:
        """The plural name of the kind, with the subresource: `pods/binding`; empty for other paths."""
        parts = self.path.split("/")
        plural = next((part for part in parts[3:] if part in PLURALS), "")
        return f"{plural}/{parts[-1]}" if parts[-1] in SUBRESOURCES else plural

    @property
    def watches(self) -> bool:
        return "watch" in self.query

    @cached_property
    def name(self) -> str:
        """The name of the object; of an Event that of the pod that it is about; of a list empty."""
        plural, _, subresource = self.resource.partition("/")
        parts = self.path.split("/")
        name = parts[-2] if subresource else parts[-1]
        if plural == "events" and self.method == "POST":
            return str(self._object().get("regarding", {}).get("name", ""))
        if name == plural:
            return str(self._object().get("metadata", {}).get("name", "")) if self.method == "POST" else ""
        return name

    def _object(self) -> Mapping[str, Any]:
        parsed: Mapping[str, Any] = json.loads(self.body)
        return parsed


Condition: TypeAlias = Callable[[Call], bool]


def request_for(method: str, resource: str, name: str) -> Condition:
    """Return a condition: the request is about exactly this object."""

    def matches(call: Call) -> bool:
        return (call.method, call.resource) == (method, resource) and call.name == name

    return matches


def binding_of(prefix: str) -> Condition:
    """Return a condition: the request binds a pod with this name prefix."""
    return lambda call: (call.method, call.resource) == ("POST", "pods/binding") and call.name.startswith(prefix)


def status_of(prefix: str) -> Condition:
    """Return a condition: the request patches the status of a pod with this name prefix."""
    return lambda call: (call.method, call.resource) == ("PATCH", "pods/status") and call.name.startswith(prefix)


def at(path: str) -> Condition:
    """Return a condition: the request has this path."""
    return lambda call: call.path == path

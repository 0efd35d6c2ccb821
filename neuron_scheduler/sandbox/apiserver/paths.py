"""
What a path of the API names: a resource, a collection in a namespace or in all, an object, a subresource.
"""

import attrs

from neuron_scheduler.sandbox.apiserver.resource import Resource
from neuron_scheduler.sandbox.apiserver.resources import NAMESPACES, PODS, find
from neuron_scheduler.sandbox.apiserver.status import no_such_path


@attrs.frozen
class Target:
    """What a path names. `namespace` is None for "in all namespaces"; `name` is empty for a collection."""

    resource: Resource
    namespace: str | None
    name: str = ""
    subresource: str = ""

    @property
    def space(self) -> str:
        """The namespace as objects of this resource are stored under."""
        return self.namespace or ""


def target_of(path: str) -> Target:
    """
    Return the resource, collection, object or subresource that a path names.

    Raises:
        StatusError: 404.
    """
    steps = path.strip("/").split("/")
    if steps[:2] == ["api", "v1"]:
        group, rest = "", steps[2:]
    elif len(steps) > 3 and steps[0] == "apis" and steps[2] == "v1":
        group, rest = steps[1], steps[3:]
    else:
        raise no_such_path()
    namespace: str | None = None
    if len(rest) > 2 and rest[0] == NAMESPACES.plural and rest[2] not in NAMESPACES.subresources:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    if (group, plural, name) == ("", "bindings", "") and namespace is not None:
        return Target(PODS, namespace, "", "binding")
    resource = find(group, "v1", plural)
    if resource is None or len(rest) > 3 or (subresource and subresource not in resource.subresources):
        raise no_such_path()
    if resource.namespaced is not (namespace is not None) and (name or namespace is not None):
        raise no_such_path()
    return Target(resource, namespace, name, subresource)

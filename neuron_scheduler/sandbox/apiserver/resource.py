"""
What a resource of the API is, as data: its names, its verbs and the fields by which it can be selected.

`resources.py` lists the resources that the sandbox serves.
"""

from collections.abc import Mapping
from typing import Final

import attrs

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@attrs.frozen
class Field:
    """Where the stored object has the field of a field selector, and the value if it is absent."""

    path: tuple[str, ...]
    absent: str = ""


def fields(*labels: str) -> dict[str, Field]:
    """Return the fields with these labels, each at the path that its label says."""
    return {label: Field(tuple(label.split("."))) for label in labels}


METADATA: Final = fields("metadata.name", "metadata.namespace")


@attrs.frozen(kw_only=True)
class Resource:
    """
    One resource of the API.

    `storage` names the table that holds its objects: two resources may be views of one. `fields` are the labels a
    field selector may use. `unconditional_update` and `create_on_update` are the rules for PUT without a
    resourceVersion and for PUT of an absent object (`AllowUnconditionalUpdate`, `AllowCreateOnUpdate` upstream). With
    `generation`, the server counts the changes of everything but metadata and status.
    """

    plural: str
    singular: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    fields: Mapping[str, Field] = attrs.field(factory=dict, hash=False)
    unconditional_update: bool = True
    create_on_update: bool = False
    generation: bool = False

    @property
    def api_version(self) -> str:
        """`v1` or `group/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`pods` or `leases.coordination.k8s.io`, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage(self) -> str:
        """The table of the objects; both views of events share one."""
        return self.plural

    @property
    def prefix(self) -> str:
        """`/api/v1` or `/apis/group/v1`."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"

"""
The fields of a pod that most pods leave out, by which plugins say which pods concern them.

Each member is the attribute itself, so a misspelt field is an error at import and for the type checker.
"""

import enum
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, cast

import attrs

from neuron_scheduler.model.pod import Constraints, Pod

_POD: Final = attrs.fields(Pod)
_CONSTRAINTS: Final = attrs.fields(Constraints)


class PodField(enum.Enum):
    """A field of `Pod` or of its `Constraints`; a pod leaves it out if it has the default."""

    REFUSAL = _POD.refusal
    NODE_NAME = _POD.node_name
    NEURON = _POD.neuron
    HOST_PORTS = _POD.host_ports
    IMAGES = _POD.images
    VOLUME_IMAGES = _POD.volume_images
    NODE_SELECTOR = _CONSTRAINTS.node_selector
    REQUIRED_TERMS = _CONSTRAINTS.required_terms
    PREFERRED_TERMS = _CONSTRAINTS.preferred_terms
    AFFINITY = _CONSTRAINTS.affinity
    ANTI_AFFINITY = _CONSTRAINTS.anti_affinity
    PREFERRED_AFFINITY = _CONSTRAINTS.preferred_affinity
    PREFERRED_ANTI_AFFINITY = _CONSTRAINTS.preferred_anti_affinity
    SPREAD = _CONSTRAINTS.spread
    VOLUME_CLAIMS = _CONSTRAINTS.volume_claims
    DISKS = _CONSTRAINTS.disks
    INLINE_VOLUMES = _CONSTRAINTS.inline_volumes
    CLAIMS = _POD.claims
    RESOURCE_CLAIMS = _CONSTRAINTS.resource_claims
    CLAIMED_ON = _CONSTRAINTS.claimed_on
    REQUIRED_FEATURES = _CONSTRAINTS.required_features

    @property
    def attribute(self) -> str:
        """The attribute's name, in whichever of the two classes has it."""
        return str(self.value.name)

    @property
    def is_of_constraints(self) -> bool:
        return self.attribute in attrs.fields_dict(Constraints)

    @property
    def _is_left_out(self) -> str:
        """A Python expression of `pod` and `constraints`: true if the pod leaves the field out."""
        value = f"{'constraints' if self.is_of_constraints else 'pod'}.{self.attribute}"
        return f"{value} is None" if self.value.default is None else f"not {value}"


@lru_cache(maxsize=16)
def left_out(fields: Sequence[PodField]) -> Callable[[Pod], tuple[bool, ...]]:
    """
    Return a function that returns, for each of the fields in order, whether a pod leaves it out.

    It is compiled, as attrs compiles constructors: it is called for every decision, where it takes 0.15 µs, and a loop
    over getters four times as long.
    """
    expressions = "".join(f"{field._is_left_out}, " for field in fields)  # noqa: SLF001 - the enum's own module
    source = f"def left_out(pod):\n    constraints = pod.constraints\n    return ({expressions})"
    namespace: dict[str, object] = {}
    exec(source, namespace)  # noqa: S102 - nothing but the names of attributes enters the source
    return cast(Callable[[Pod], tuple[bool, ...]], namespace["left_out"])

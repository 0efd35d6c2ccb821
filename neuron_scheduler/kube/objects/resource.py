"""A resource that is listed and watched: its path, its codec, and the order in which its objects are handed over."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import attrs

from neuron_scheduler.kube.objects.base import Codec

T = TypeVar("T")


@attrs.frozen
class Resource(Generic[T]):
    """
    A resource that is listed and watched.

    Attributes:
        params: of list and watch alike.
        order: key by which the objects of a list are handed over, so that every replica and restart sees one order.
    """

    path: str
    codec: Codec[T]
    same: Callable[[T, T], bool]
    order: Callable[[T], Any]
    params: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def name(self) -> str:
        """Its plural, such as `pods`."""
        return self.path.rpartition("/")[2]

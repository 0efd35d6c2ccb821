"""A set of a machine's cores as one integer: bit *c* is core *c*, which belongs to device `c // cores_per_device`."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from neuron_scheduler.model.bitset import BitSet

    class CoreMask(BitSet):
        """A set of cores."""

        def __rshift__(self, cores: int, /) -> "CoreMask": ...

else:
    CoreMask = int

NO_CORES: Final = CoreMask(0)

"""All breaks, by room; most change what is to stay when the rooms around it are rebuilt."""

from typing import Final

from tests.breaks.of_the_core import CLUSTER, NEURON, SCHEDULING
from tests.breaks.of_the_rest import ANSWERS, CONTROLLERS, EXTENDER, INSTALLATION, KUBE, PROCESS

BREAKS: Final = (
    *NEURON,
    *CLUSTER,
    *SCHEDULING,
    *CONTROLLERS,
    *KUBE,
    *EXTENDER,
    *ANSWERS,
    *PROCESS,
    *INSTALLATION,
)

"""
ImageLocality: of nodes that are otherwise equal, those that have most of the pod's images are best.

Upstream: `plugins/imagelocality/image_locality.go`. An image counts by its size times the share of nodes that have it,
so that a single node with it does not attract every pod. Sums are compared in eighths of upstream's range, which grows
with every image, those of volumes included (since Kubernetes 1.37).
"""

from collections.abc import Iterator

from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins.contract import Plugin, PluginName, Preference
from neuron_scheduler.scheduling.plugins.pod_fields import PodField

NAME = PluginName("ImageLocality")
LEAST = 23 << 20
MOST_OF_AN_IMAGE = 1000 << 20
EIGHTHS = 8


def prefer(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    """Return the nodes with the most eighths between 23 MB and 1000 MB for each image."""
    if not pod.images:
        return among
    sums, everywhere = Column(), 0
    for amount, nodes in _amounts(view, pod):
        here = nodes & among
        if here == among:
            everywhere += amount
        elif here:
            sums.add(amount, here)
    if not sums.positive:
        return among
    for eighth in range(EIGHTHS, 0, -1):
        needed = _least_sum(eighth, len(pod.images) + len(pod.volume_images)) - everywhere
        reached = sums.at_least(needed, among)
        if reached:
            return reached
    return among


def _amounts(view: View, pod: Pod) -> Iterator[tuple[int, NodeSet]]:
    """Yield size times share of nodes, and the nodes that have the image in that size."""
    for name in (*pod.images, *pod.volume_images):
        sizes = tuple(view.images(name))
        having = sum(nodes.bit_count() for _, nodes in sizes)
        for size, nodes in sizes:
            yield size * having // view.node_count, nodes


def _least_sum(eighth: int, images: int) -> int:
    """Return the least sum that reaches an eighth of the range for so many images."""
    span = MOST_OF_AN_IMAGE * images - LEAST
    return LEAST - (-eighth * span // EIGHTHS)


PLUGIN = Plugin(name=NAME, preference=Preference(NAME, prefer, reads=(PodField.IMAGES, PodField.VOLUME_IMAGES)))

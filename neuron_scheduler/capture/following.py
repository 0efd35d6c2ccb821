"""
Follows a cluster with watches, for a picture that is drawn again and again.

Only nodes and pods are followed: the picture of the fleet shows nothing else. The handlers are those of a capture, so
the picture is that of a cluster which was read once. Does not decide anything.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import attrs

from neuron_scheduler.capture.collection import Collection, our_profiles
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.watch.informer import Informer
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Profile


@attrs.define(eq=False)
class Following:
    """A cluster that is kept up to date."""

    collection: Collection
    nodes: Informer[Node]
    pods: Informer[Pod]
    _nominated: set[str] = attrs.field(factory=set, init=False)

    async def ready(self) -> None:
        """Wait until everything has been listed once."""
        await self.pods.synced.wait()

    def current(self) -> Cluster:
        """Return the cluster as it is now; it changes at the next pause."""
        cluster = self.collection.cluster
        for uid in self._nominated:
            cluster.clear_nomination(uid)
        waiting = [pod for pod in self.pods.objects() if pod.nominated_node_name and not pod.node_name]
        self._nominated = {pod.uid for pod in waiting}
        self.collection.keep_nominated_space(waiting)
        return cluster

    @property
    def is_old(self) -> bool:
        """Whether the API server has not confirmed for minutes that this is current."""
        return self.nodes.stale or self.pods.stale


@asynccontextmanager
async def following(client: Client, *, profiles: Sequence[Profile] | None = None) -> AsyncIterator[Following]:
    """
    Follow the cluster as long as the block lasts; it is complete when `Following.ready` returns.

    Errors of the API server are not raised: what has failed is tried again. So the reader's rights must be checked
    before (`live.check_rights`).
    """
    collection = Collection(source=client.connection.server, taken=0.0, profiles=profiles or our_profiles())
    nodes = Informer(client=client, resource=NODES, handler=collection.handler_of(NODES))
    pods = Informer(client=client, resource=PODS, handler=collection.handler_of(PODS))

    async def follow_pods() -> None:
        await nodes.synced.wait()  # a pod comes after its node, as in the process
        await pods.run()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(nodes.run)
        tasks.start_soon(follow_pods)
        yield Following(collection, nodes, pods)
        tasks.cancel_scope.cancel()

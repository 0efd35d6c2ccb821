"""Mutants of the cluster in memory: who holds which devices, and since when."""

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        name="assumed-after-the-await",
        away="that a decision is assumed in the step in which it is made",
        danger="the next pod gets the same devices",
        edits=(
            Edit(
                "scheduling.cycle.trial",
                """
                cluster.assume(placed(pod, decision.node_name, allocation), decision.cores)
                """,
                """
                assumed = placed(pod, decision.node_name, allocation)
                asyncio.get_running_loop().call_soon(cluster.assume, assumed, decision.cores)
                """,
            ),
            Edit(
                "scheduling.cycle.trial",
                """
                from collections.abc import Mapping
                """,
                """
                import asyncio
                from collections.abc import Mapping
                """,
            ),
        ),
    ),
    Mutant(
        name="nothing-is-assumed",
        away="the assumption",
        danger="until the watch shows a Binding, its devices are given away again",
        edits=(
            Edit(
                "scheduling.cycle.trial",
                """
                cluster.assume(placed(pod, decision.node_name, allocation), decision.cores)
                """,
                "",
            ),
        ),
        where=(r"cache late|watch (silent|late)",),
    ),
    Mutant(
        name="a-confirmed-pod-is-forgotten",
        away="that a pod which the watch has confirmed is not forgotten with its assumption",
        danger="a bound pod loses its devices to another one",
        edits=(
            Edit(
                "cluster.cluster",
                """
                if uid in self._assumed:
                    self.remove_pod(uid)
                """,
                """
                self.remove_pod(uid)
                """,
            ),
        ),
        where=(r"another scheduler binds", r"request late.*bindings"),
    ),
    Mutant(
        name="forgotten-with-the-node",
        away="the pods of a node that is deleted",
        danger="when the node comes back, the devices of its pods count as free",
        edits=(
            Edit(
                "controllers.handlers.nodes",
                """
                log.info("Delete event for node", v=3, node=old.name)
                """,
                """
                log.info("Delete event for node", v=3, node=old.name)
                known = self.cluster.node(old.name)
                for uid in list(known.pod_infos) if known is not None else ():
                    self.cluster.remove_pod(uid)
                """,
            ),
        ),
        where=(r"delete node (n\d)[\s\S]*create node \1",),
    ),
    Mutant(
        name="free-while-it-terminates",
        away="the devices of a pod that is being deleted",
        danger="they are given to another pod while its containers still run",
        edits=(
            Edit(
                "controllers.handlers.pods",
                """
                self.queue.remove(pod.uid)
                before, nominated = self.cluster.pod_info(pod.uid), self.cluster.nomination(pod.uid)
                """,
                """
                self.queue.remove(pod.uid)
                if pod.terminating:
                    self.cluster.remove_pod(pod.uid)
                    return
                before, nominated = self.cluster.pod_info(pod.uid), self.cluster.nomination(pod.uid)
                """,
            ),
        ),
        where=(r"delete pod(?!.*force)",),
    ),
    Mutant(
        name="a-waiting-binding-is-not-looked-at-again",
        away="the look at unknown holders before a Binding that waited is sent",
        danger="a pod without ids that has come to the node meanwhile may have the same devices",
        edits=(
            Edit(
                "scheduling.cycle.recheck",
                """
                if not _is_safe(node_info, pod):
                    return False
                """,
                "",
            ),
        ),
        where=(
            r"create on n\d pod|another scheduler binds",
            r"kubelet slow",
        ),
    ),
    Mutant(
        name="unknown-ids-hold-nothing",
        away="unknown holders: a pod without ids holds nothing",
        danger="the devices that the kubelet gave it are given away again",
        edits=(
            Edit(
                "cluster.rows.pod_info",
                """
                return PodInfo(pod, cores=allocation.cores, problem=allocation.problem)
                """,
                """
                return PodInfo(pod, cores=allocation.cores or NO_CORES, problem=allocation.problem)
                """,
            ),
        ),
        where=(r"create on n\d pod",),
    ),
    Mutant(
        name="changed-annotations-are-believed",
        away="that the first allocation of a pod counts, whatever its annotations say later",
        danger="a user frees devices, by an annotation, that the container goes on using",
        edits=(
            Edit(
                "cluster.cluster",
                """
                if before is not None and same_node and before.cores and before.cores != pod_info.cores:
                """,
                """
                if before is not None and not same_node and before.cores:
                """,
            ),
        ),
        where=(r"rewrite the allocation",),
    ),
    Mutant(
        name="another-schedulers-pods-are-left-out",
        away="the pods that other schedulers have bound",
        danger="their devices are given away again",
        edits=(
            Edit(
                "controllers.handlers.pods",
                """
                if new.node_name:
                    self._bound(new)
                elif self._is_ours(new):
                    self.queue.add(new, self.clock())
                """,
                """
                if new.node_name and new.scheduler_name in self.scheduler_names:
                    self._bound(new)
                elif self._is_ours(new):
                    self.queue.add(new, self.clock())
                """,
            ),
        ),
        where=(
            r"another scheduler binds",
            r"default-scheduler",
        ),
    ),
    Mutant(
        name="a-block-may-begin-anywhere",
        away="the alignment of a block",
        danger="an allocation that the machine's topology does not allow",
        edits=(
            Edit(
                "neuron.packing",
                """
                return [start for start in range(0, self.size, count) if free >> start & block == block]
                """,
                """
                return [start for start in range(0, self.size - count + 1) if free >> start & block == block]
                """,
            ),
        ),
    ),
)

"""Connects the verbs with the parts of our own queue, whose cluster, fence and Bindings they share."""

from collections.abc import Callable, Sequence

from neuron_scheduler.controllers.leader_elector import LeaderElector
from neuron_scheduler.controllers.pod_reporter import PodReporter
from neuron_scheduler.controllers.scheduling_loop import SchedulingLoop
from neuron_scheduler.extender.bind import Bind
from neuron_scheduler.extender.forward import Forward
from neuron_scheduler.extender.preempt import Preempt
from neuron_scheduler.extender.verbs import Role, Verbs
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Profile, extender_profile, preemption_profile


def assembled(
    *,
    loop: SchedulingLoop,
    reporter: PodReporter,
    election: LeaderElector | None,
    known: Callable[[str], Pod | None],
    unsynced: Callable[[], str | None],
    forward: Forward | None,
    budgets: Callable[[], Sequence[DisruptionBudget]],
) -> Verbs:
    """
    Return the verbs.

    Args:
        loop: the scheduling loop; one without profiles has no pods of its own, and its Bindings are those of `bind`.
        reporter: reports to the owners of pods.
        election: None without leader election.
        known: returns a pod as the watch last showed it, by its key.
        unsynced: returns why the cluster is not known yet; None if it is.
        forward: asks the leader; None without leader election.
        budgets: returns all PodDisruptionBudgets.
    """
    profile = extender_profile()
    bind = _bind(loop, profile, reporter, known)
    preempt = Preempt(
        cluster=loop.cluster,
        profile=preemption_profile(),
        beside=profile,
        budgets=budgets,
        own_names=loop.profiles.keys(),
        abandoned=bind.abandoned,
        clock=loop.clock,
    )
    return Verbs(
        cluster=loop.cluster,
        profile=profile,
        bind=bind,
        preempt=preempt,
        forward=forward,
        unsynced=unsynced,
        role=lambda: _role(bind, loop, election),
        clock=loop.clock,
        errors=loop.errors,
    )


def _bind(loop: SchedulingLoop, profile: Profile, reporter: PodReporter, known: Callable[[str], Pod | None]) -> Bind:
    return Bind(
        cluster=loop.cluster,
        profile=profile,
        assumptions=loop.assumptions,
        cycle=loop.binding_cycle,
        known=known,
        reporter=reporter,
        may_bind=loop.may_bind,
        own_names=loop.profiles.keys(),
        clock=loop.clock,
        counted=loop.metrics.extender_bound,
        errors=loop.errors,
    )


def _role(bind: Bind, loop: SchedulingLoop, election: LeaderElector | None) -> Role:
    if bind.leads:
        return Role.LEADS
    if election is not None and not election.leading:
        return Role.FOLLOWS
    return Role.STOPS if loop.stopping else Role.TAKES_OVER

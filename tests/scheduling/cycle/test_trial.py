"""A trial is looked at once more after its last pause; the plans for groups show the rest of what it promises."""

from typing import Final

import pytest

from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.trial import ChangedError, Trial
from tests.support.builders import node, pod
from tests.support.harness import cluster_of

PROFILE: Final = default_profile("my-scheduler")


@pytest.mark.parametrize("label", ["rack", "probe"])
def test_a_node_that_is_in_another_domain_by_now_ends_a_trial(label: str) -> None:
    """The node would still take the pod, but the pod's group is somewhere else; other labels change nothing."""
    cluster = cluster_of([node("n", "trn1.32xlarge", labels={"rack": "a", "probe": "a"})])
    trial, key = Trial(cluster), GroupKey(Dialect.COSCHEDULING, "default", "train")
    member = pod("member", devices=4, group=PodGroup(key, topology="rack"))
    cluster.groups.put(member)
    trial.place(member, PROFILE)
    cluster.put_node(node("n", "trn1.32xlarge", labels={"rack": "a", "probe": "a", label: "b"}))
    if label == "probe":
        trial.check()
        return
    with pytest.raises(ChangedError):
        trial.check()

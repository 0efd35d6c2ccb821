"""A trial is looked at once more after its last pause; the plans for groups show the rest of what it promises."""

from typing import Final

import pytest

from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.trial import ChangedError, Trial
from tests.support.builders import node, pod
from tests.support.harness import cluster_of

PROFILE: Final = default_profile("my-scheduler")


@pytest.mark.parametrize("rack", ["a", "b"])
def test_a_node_that_is_in_another_domain_by_now_ends_a_trial(rack: str) -> None:
    """The node would still take the pod, but the pod's group is somewhere else; a heartbeat changes nothing."""
    cluster = cluster_of([node("n", "trn1.32xlarge", labels={"rack": "a"})])
    trial = Trial(cluster)
    trial.place(pod("member", devices=4), PROFILE)
    cluster.put_node(node("n", "trn1.32xlarge", labels={"rack": rack}, pods=99))
    if rack == "a":
        trial.check()
        return
    with pytest.raises(ChangedError):
        trial.check()

"""Which selector selects the pods that belong together with a pod."""

import pytest

from neuron_scheduler.cluster.tables.selecting_kinds import Workloads
from neuron_scheduler.model.pod import Owner, Pod
from neuron_scheduler.model.selecting_kinds import Workload
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from tests.support.builders import pod


def selecting(**labels: str) -> LabelSelector:
    """Return a selector of these labels."""
    return LabelSelector(tuple(Requirement(key, Operator.IN, (value,)) for key, value in labels.items()))


def service(name: str, selector: LabelSelector | None, namespace: str = "default") -> Workload:
    """Return a Service."""
    return Workload(f"uid-{name}", "v1", "Service", namespace, name, selector)


WEB = service("web", selecting(app="web"))
TIER = service("tier", selecting(app="web", tier="front"))
RS = Workload("uid-rs", "apps/v1", "ReplicaSet", "default", "web", selecting(app="web", hash="1"))
OWNER = Owner("apps/v1", "ReplicaSet", "web")
EVERYTHING = (WEB, TIER, RS, service("all", LabelSelector()), service("none", None), service("far", WEB.selector, "o"))


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param(pod(labels={"app": "web"}), selecting(app="web"), id="a Service"),
        pytest.param(pod(labels={"app": "web", "tier": "front"}), selecting(app="web", tier="front"), id="two"),
        pytest.param(pod(labels={"tier": "front"}), None, id="a Service means a pod only with all its labels"),
        pytest.param(pod(labels={}, owner=OWNER), selecting(app="web", hash="1"), id="a controller, labels or not"),
        pytest.param(
            pod(labels={"app": "web"}, owner=Owner("v1", "ReplicaSet", "web")), selecting(app="web"), id="another group"
        ),
        pytest.param(pod(labels={"app": "web"}, namespace="p"), None, id="another namespace"),
        pytest.param(pod(), None, id="nobody"),
    ],
)
def test_selector_of(asked: Pod, want: LabelSelector | None) -> None:
    """The selectors of all Services of the pod and of its controller are combined."""
    workloads = Workloads()
    for workload in EVERYTHING:
        workloads.put(workload)
    assert workloads.selector_of(asked) == want


def test_what_is_gone_selects_nothing() -> None:
    """Nothing is left behind; a copy keeps its selectors."""
    workloads = Workloads()
    for workload in EVERYTHING:
        workloads.put(workload)
    fork = workloads.fork()
    for workload in EVERYTHING:
        workloads.remove(workload)
        workloads.remove(workload)
    asked = pod(labels={"app": "web", "tier": "front"}, owner=OWNER)
    assert workloads.selector_of(asked) is None
    assert fork.selector_of(asked) == selecting(app="web", hash="1", tier="front")
    assert (workloads._services, workloads._controllers) == ({}, {})

"""InterPodAffinity: what is not served yet is refused, the pod's own terms and those that others bear."""

import pytest

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector, Operator, PodAffinityTerm, Requirement
from tests.builders import node, pod
from tests.scheduling.harness import cluster_of, refusal, schedule

WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
OWN = "0/1 nodes are available: required pod affinity and anti-affinity are not supported yet."
BORNE = (
    "0/1 nodes are available: required anti-affinity of an existing pod matches this pod, which is not supported yet."
)


def term(
    selector: LabelSelector | None = WEB, *namespaces: str, of_namespaces: LabelSelector | None = None
) -> PodAffinityTerm:
    """Return a term on hostnames."""
    return PodAffinityTerm("kubernetes.io/hostname", selector, frozenset(namespaces), of_namespaces)


@pytest.mark.parametrize("pending", [pod(affinity=(term(),)), pod(anti_affinity=(term(),))])
def test_own_terms_are_refused(pending: Pod) -> None:
    """Placing such a pod by anything else would be wrong."""
    found = refusal(cluster_of([node("n")]), pending)
    assert (found.text, found.hopeless) == (OWN, True)


@pytest.mark.parametrize(
    ("borne", "matches"),
    [
        pytest.param(term(WEB, "default"), True, id="this namespace, these labels"),
        pytest.param(term(LabelSelector(), "default"), True, id="an empty selector means all"),
        pytest.param(term(WEB, of_namespaces=LabelSelector()), True, id="any namespace"),
        pytest.param(
            term(WEB, "other", of_namespaces=WEB), True, id="a namespace selector may mean any, since nobody looked"
        ),
        pytest.param(term(WEB, "other"), False, id="another namespace"),
        pytest.param(term(None, "default"), False, id="no selector means nobody"),
    ],
)
def test_borne_terms_are_refused(borne: PodAffinityTerm, matches: bool) -> None:
    """A pod that an existing pod may want to be far from waits until that one is gone; its labels may save it."""
    bearer = pod("bearer", anti_affinity=(borne,), on="n")
    cluster = cluster_of([node("n")], [bearer])
    if matches:
        found = refusal(cluster, pod(labels={"app": "web"}))
        assert (found.text, found.hopeless) == (BORNE, True)
        cluster.remove_pod(bearer.uid)
    assert schedule(cluster, pod(labels={"app": "web"})) == ("n", ())


def test_other_labels_are_not_meant() -> None:
    """The selector decides."""
    cluster = cluster_of([node("n")], [pod("bearer", anti_affinity=(term(WEB, "default"),), on="n")])
    assert schedule(cluster, pod(labels={"app": "db"})) == ("n", ())

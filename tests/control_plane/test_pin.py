"""A release is pinned by a module of ours that names the published version of each staging module."""

from tests.control_plane.binaries import MODULES, kubernetes_version, releases
from tests.control_plane.pin import go_mod

UPSTREAM = """module k8s.io/kubernetes

go 1.26.0

godebug default=go1.26

require (
	k8s.io/api v0.0.0
	k8s.io/klog/v2 v2.130.1
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/client-go => ./staging/src/k8s.io/client-go
)
"""


def test_staging_modules_are_replaced_by_published_ones() -> None:
    """Release 1.38.2 of Kubernetes is version 0.38.2 of its staging modules; Go's version is upstream's."""
    lines = go_mod(UPSTREAM, "v1.38.2").splitlines()
    assert {"go 1.26.0", "godebug default=go1.26", "require k8s.io/kubernetes v1.38.2"} <= {*lines}
    assert [line.strip() for line in lines if "=>" in line] == [
        "k8s.io/api => k8s.io/api v0.38.2",
        "k8s.io/client-go => k8s.io/client-go v0.38.2",
    ]


def test_the_pinned_releases_follow_each_other() -> None:
    """Each folder pins a patch of its own minor release, and none is left out."""
    assert [kubernetes_version(release).rpartition(".")[0] for release in releases()] == [f"v{r}" for r in releases()]
    minors = [int(release.partition(".")[2]) for release in releases()]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert all((MODULES / f"kubernetes-{release}" / "go.sum").exists() for release in releases())

"""The group of each pod of real controllers, as recorded on a real API server; skipped without the recording."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.node import ULTRASERVER_2, ULTRASERVER_4
from neuron_scheduler.model.pod import Pod
from tests.support.wire_objects import encoded, pod

RECORDING: Final = Path(__file__).parents[5] / "shared/data/controllers.yaml"
Meant = tuple[str, int, int, str]
"""Title, least, expected and topology of a group."""
_EX: Final = "jobset.sigs.k8s.io/job-key="
_MJAT: Final = "training.kubeflow.org/job-name=mjat,training.kubeflow.org/job-role=worker"

# What the controllers mean by these pods. LeaderWorkerSet: a replica is a group, and may create its workers late; Kueue
# says the same of its pods in other words, also of StatefulSets. A count in a label or annotation of a user holds; the
# count of a PodGroup object is not on the pod. Of a JobSet with an exclusive topology, each Job's first pod decides.
# Kueue's Workload is a job as a whole, but for what its owner did not create at once: launchers of MPI are Jobs without
# an index, which may be created after the workers.
GROUPS: Final[Mapping[str, Meant | None]] = {
    "LWS LeaderCreated exclusive-topology serve-0": ("serve-0", 0, 2, ULTRASERVER_2),
    "LWS LeaderCreated exclusive-topology serve-0-1": ("serve-0", 0, 2, ULTRASERVER_2),
    "LWS LeaderReady exclusive-topology lr-0-1": ("lr-0", 0, 4, ULTRASERVER_4),
    "LWS LeaderCreated no topology f-0": ("f-0", 0, 4, ""),
    "LWS LeaderCreated no topology f-0-1": ("f-0", 0, 4, ""),
    "JobSet, labels of coscheduling train-driver-0-0-pqcp6": ("train", 4, 4, ""),
    "JobSet exclusive-topology ex-w-0-0-t9htb": (f"{_EX}62542be74d328041bbbd549c59e32b0764ac7c5d", 0, 0, ULTRASERVER_2),
    "JobSet exclusive-topology ex-w-0-1-bk4fp": None,
    "Kueue plain pod group label q g-0": ("g", 4, 4, ""),
    "Kueue plain pod group annotation q g-0": ("g", 4, 4, ""),
    "Kueue plain pod group label tas g-0": ("g", 4, 4, ""),
    "Kueue plain pod group annotation tas g-0": ("g", 4, 4, ""),
    "Kueue plain pod group annotation tashost g-0": ("g", 4, 4, ""),
    "Kueue LWS LeaderCreated q kw-0": ("kw-0", 0, 3, ""),
    "Kueue LWS LeaderCreated q kw-0-1": ("kw-0", 0, 3, ""),
    "Kueue StatefulSet q ks-0": ("statefulset-ks-443e3", 0, 3, ""),
    "Kueue batch Job, plain flavor bj-0-9hkq4": ("job-bj-31aca", 0, 0, ""),
    "Kueue batch Job TAS servers bt-0-mq9h6": ("job-bt-9b25c", 0, 0, ""),
    "Kueue batch Job TAS hosts bh-0-m85ps": ("job-bh-dcf34", 0, 0, ""),
    "Kueue JobSet kj-driver-0-0-2lkhw": ("jobset-kj-225f4", 0, 0, ""),
    "Kueue JobSet TAS kt-workers-0-0-dsncc": ("jobset-kt-8cb9b", 0, 0, ""),
    "Kueue LWS LeaderReady tas kw-0": ("kw-0", 0, 3, ""),
    "Kueue LWS LeaderReady tas kw-0-1": ("kw-0", 0, 3, ""),
    "Kueue StatefulSet tas ks-0": ("statefulset-ks-23bca", 0, 3, ""),
    "Kueue StatefulSet q (2) ks-0": ("statefulset-ks-11e68", 0, 3, ""),
    "Kueue LWS LeaderReady q kw-0": ("kw-0", 0, 3, ""),
    "Kueue LWS LeaderCreated q (2) kw-0-1": ("kw-0", 0, 3, ""),
    "MPIJob AtStartup mjat-launcher-jztlq": None,
    "MPIJob AtStartup mjat-worker-0": (_MJAT, 0, 0, ULTRASERVER_4),
    "Kueue MPIJob kq-launcher-mqq25": None,
    "Kueue MPIJob kq-worker-0": ("mpijob-kq-b04f6", 0, 0, ""),
    "Kueue MPIJob TAS kt-launcher-l7ns9": None,
    "Kueue MPIJob TAS kt-worker-0": ("mpijob-kt-898fe", 0, 0, ""),
    "Kueue LWS exclusive kx-0": ("kx-0", 0, 4, ULTRASERVER_4),
    "Kueue LWS exclusive kx-0-1": ("kx-0", 0, 4, ULTRASERVER_4),
    "TrainJob coscheduling tj-node-0-0-xrlqs": ("tj", 0, 0, ""),
    "TrainJob coscheduling + min-available one-node-0-0-swm85": ("one", 4, 4, ""),
    "Kueue TrainJob kq-node-0-0-8zjhk": ("kq", 4, 4, ""),
    "RayCluster ra-head-55t6b": None,
    "RayCluster ra-w-worker-fdp9h": None,
    "Kueue RayJob rj-tdjbv-head-qtf9j": ("rayjob-rj-5eb87", 0, 0, ""),
    "Kueue RayJob rj-tdjbv-w-worker-dk2tz": ("rayjob-rj-5eb87", 0, 0, ""),
    "Kueue LWS exclusive (2) kx-0": ("kx-0", 0, 4, ULTRASERVER_4),
    "Kueue JobSet exclusive kex-w-0-0-l6zmz": (f"{_EX}f76f4bf46fa202de60afd7b273377c43aa58a3bf", 0, 0, ULTRASERVER_2),
    "Kueue LWS exclusive (3) kx-0-1": ("kx-0", 0, 4, ULTRASERVER_4),
    "MPIJob --gang-scheduling one-worker-0": None,
    "MPIJob --gang-scheduling (2) one-launcher-vqppw": ("one", 0, 0, ""),
    "KubeRay scheduler-plugins bs-head-k84xp": ("bs", 5, 5, ""),
    "Kueue MPIJob (2) kq-launcher-p5mwq": ("kq", 0, 0, ""),
    "Kueue MPIJob (2) kq-worker-0": ("kq", 0, 0, ""),
    "Kueue MPIJob TAS (2) kt-launcher-2phxr": ("kt", 0, 0, ""),
    "Kueue MPIJob TAS (2) kt-worker-0": ("kt", 0, 0, ""),
    "MPIJob AtStartup (2) mjat-worker-0": ("mjat", 0, 0, ULTRASERVER_4),
}


def recorded() -> Iterator[tuple[str, Any]]:
    """Yield the words of each recorded pod, under a title that is its own."""
    seen = dict[str, int]()
    for document in RECORDING.read_text().split("\n---\n")[1:]:
        title = document.partition("\n")[0].removeprefix("# ")
        seen[title] = seen.get(title, 0) + 1
        for name, words in yaml.safe_load(document).items():
            yield f"{title} ({seen[title]}) {name}" if seen[title] > 1 else f"{title} {name}", words


@pytest.mark.skipif(not RECORDING.exists(), reason="the recording is not here")
def test_each_recorded_pod_is_in_the_group_that_its_controller_means() -> None:
    """Its name, the count that holds, the size that is said, and the domain."""
    found = dict[str, Meant | None]()
    for title, words in recorded():
        metadata = {key: words.get(key, {}) for key in ("labels", "annotations")}
        spec = {"affinity": words["affinity"]} if "affinity" in words else {}
        value = PODS.decode(encoded(pod(metadata=metadata, spec=spec))).value
        assert isinstance(value, Pod)
        group = value.group
        found[title] = None if group is None else (group.key.name, group.least, group.expected, group.topology)
    assert found == GROUPS

"""`why`, `map` and `fit` about pods with claims: of a cluster, a dump, and the running scheduler, in the same words."""

import json
from pathlib import Path

from tests.control_plane.binaries import require
from tests.control_plane.objects import create_pod
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import run_scheduler
from tests.end_to_end.test_commands import ask, run
from tests.end_to_end.test_questions import NAME, Users, account_of_ours, users  # noqa: F401 - fixtures
from tests.end_to_end.test_resource_claims import (  # noqa: F401 - fixtures
    claiming,
    controllers,
    fleet,
    given,
    grant,
)
from tests.end_to_end.workload import refused

KINDS = "nodes,pods,namespaces,resourceslices,deviceclasses,resourceclaims"
QUESTIONS = (
    (("why", "waits"), 1, "12 Neuron devices free on 1 node, largest free block 8, pod needs 16"),
    (("why", "four"), 0, "default/four is on a (devices 0-3)."),
    (("why", "lost"), 1, 'Waiting for a resource claim: the claim of template "neurons" is not created yet.'),
    (("why", "-A"), 1, "16 Neuron devices"),
    (("map",), 0, "2 nodes, 32 devices: 12 free (largest block 8), 20 used"),
    (("fit", "--devices=1"), 1, "2 node(s) gave their Neuron devices by claims only"),
)


async def test_every_way_tells_the_same_of_claims(
    fleet: RestClient,  # noqa: F811 - a fixture
    users: Users,  # noqa: F811 - likewise
    account_of_ours: Path,  # noqa: F811 - likewise
    plane: ControlPlane,
    tmp_path: Path,
) -> None:
    """Devices count as if they were asked for by counts; a template is not read, and `fit` says so."""
    admin, token = plane.kubeconfig(tmp_path / "admin"), plane.kubeconfig(tmp_path / "token", token=users.admin)
    config, dump, one = (tmp_path / name for name in ("config.yaml", "dump.json", "pod.json"))
    kind = {"apiVersion": "neuron-scheduler/v1", "kind": "NeuronSchedulerConfiguration", "claims": True}
    config.write_text(json.dumps(kind))
    one.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **claiming("one", "one")}))
    await grant(fleet, NAME)
    async with run_scheduler(account_of_ours, "--answer-questions", "--claims", "--leader-elect=false") as scheduler:
        for name, of in (("four", "four"), ("xl", "xl")):
            await create_pod(fleet, claiming(name, of))
            await given(fleet, name)
        await create_pod(fleet, claiming("lost", "none"))
        await create_pod(fleet, claiming("waits", "xl"))
        await refused(fleet, "waits", saying="Insufficient neuron.aws.com")
        dump.write_text(await run(require("kubectl"), "get", KINDS, "-A", "-o", "json", kubeconfig=admin))
        for question, code, want in QUESTIONS:
            for source, reader in (
                (f"--config={config}", admin),
                (f"--from={dump}", admin),
                (f"--ask=http://127.0.0.1:{scheduler.port}", token),
            ):
                answer = await ask(*question, source, kubeconfig=reader, code=code)
                assert want in " ".join(answer.split()), answer
        assert "not read" in await ask("fit", "-f", str(one), f"--from={dump}", kubeconfig=admin, code=2)
        assert await scheduler.stop() == 0

"""Optional components are taken out with the commands of `docs/settings.md`."""

from pathlib import Path

import pytest

from neuron_scheduler.capacity.placeholders import manifest
from tests.capacity.asked import NAME, asked
from tests.control_plane.server import run_control_plane
from tests.end_to_end.asking import PLACEHOLDERS
from tests.support.documented_commands import Shell, reader_shell, run_by

COMPONENTS = (
    "capacity-requests",
    "claims",
    "extender",
    "page",
    "questions",
    "require-scheduler",
    "secure-metrics",
    "set-scheduler",
)
"""Those of the table, and one more for this road. `page` needs `questions`, so it goes first."""
OURS = """
kinds=services,namespaces,priorityclasses,roles,rolebindings,clusterroles,clusterrolebindings
for kind in validating mutating; do kinds="$kinds,${kind}admissionpolicies,${kind}admissionpolicybindings"; done
kubectl get "$kinds" --all-namespaces --selector app.kubernetes.io/name=neuron-scheduler --output name
"""


async def choose(shell: Shell, *components: str) -> None:
    """Write these components into the reader's kustomization."""
    names = ", ".join(f"components/{name}" for name in components)
    await shell.output(f"sed -i 's|^components: .*|components: [{names}]|' manifests/kustomization.yaml")


@pytest.mark.control_plane
async def test_nothing_of_a_component_is_left(tmp_path: Path) -> None:
    """README installs all of them in a fresh cluster; without them it is as if they had never been there."""
    _, install, *_ = run_by("tests/end_to_end/test_readme.py::test_with_kubectl")
    (take_out,) = run_by("tests/end_to_end/test_components_off.py::test_nothing_of_a_component_is_left")
    async with run_control_plane(with_controller_manager=True) as plane:
        shell = reader_shell(tmp_path, plane.kubeconfig(tmp_path / "kubeconfig"), road="my-scheduler")
        await choose(shell, *COMPONENTS)
        await shell.run(install, replaced={"REGISTRY": "registry.example"})
        async with plane.client(await plane.token_for("kube-system", "neuron-scheduler")) as scheduler:
            await scheduler.post(PLACEHOLDERS, manifest(NAME, asked(), "registry.example/pause"))  # nobody else may
        everything = set((await shell.output(OURS)).splitlines())
        for index, name in enumerate(COMPONENTS, start=1):
            await choose(shell, *COMPONENTS[index:])
            await shell.run(take_out, replaced={"set-scheduler": name})
        left = set((await shell.output(OURS)).splitlines())
        await shell.output("kubectl delete -k manifests/ && kubectl apply -k manifests/")
        assert left == set((await shell.output(OURS)).splitlines())
        assert len(everything - left) > 10

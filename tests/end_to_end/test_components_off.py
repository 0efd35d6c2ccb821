"""Capacity requests are turned off with the commands of `docs/autoscaling.md`."""

import subprocess
from pathlib import Path

import anyio
import pytest

from neuron_scheduler.capacity.placeholders import manifest
from tests.capacity.asked import NAME, asked
from tests.control_plane.binaries import require
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end.asking import PLACEHOLDERS
from tests.support.documented_commands import ROOT, reader_shell, run_by
from tests.support.kustomize import customized


async def kubectl(plane: ControlPlane, *arguments: str) -> str:
    """Run the user's own kubectl as the administrator; return what it prints."""
    kubeconfig = plane.kubeconfig(plane.folder / "admin.kubeconfig")
    command = [str(require("kubectl")), f"--kubeconfig={kubeconfig}", *arguments]
    done = await anyio.run_process(command, cwd=ROOT, check=False, stderr=subprocess.STDOUT)
    assert done.returncode == 0, (arguments, done.stdout.decode())
    return done.stdout.decode()


@pytest.mark.control_plane
async def test_what_was_asked_for_is_gone(tmp_path: Path) -> None:
    """What was asked for is gone with its namespace, and with it the rights and policies of the component."""
    (commands,) = run_by("tests/end_to_end/test_capacity_requests_off.py::test_what_was_asked_for_is_gone")
    async with run_control_plane(with_controller_manager=True) as plane:
        await kubectl(plane, "apply", "-k", "manifests/lease-watch")
        await kubectl(plane, "apply", "-k", str(customized("my-scheduler", tmp_path / "asking", "capacity-requests")))
        await plane.admin.post(PLACEHOLDERS, manifest(NAME, asked(), "registry.example/pause"))
        await reader_shell(tmp_path, plane.kubeconfig(tmp_path / "kubeconfig"), road="my-scheduler").run(commands)
        kinds = "namespaces,priorityclasses,validatingadmissionpolicies,validatingadmissionpolicybindings,roles,pods"
        left = await kubectl(plane, "get", kinds, "--all-namespaces", "--output=name")
        assert [name for name in left.splitlines() if "capacity" in name] == []
        assert "validatingadmissionpolicy.admissionregistration.k8s.io/neuron-scheduler-leader" in left.splitlines()

"""What shells offer: commands, flags, values, names of pods; the scripts work in the shells that are there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import anyio.to_thread
import pytest

from neuron_scheduler import cli
from neuron_scheduler.commands.completion import SHELLS
from tests.capture.test_files import pod
from tests.support.listing_server import kubeconfig, listing


def offered(capsys: pytest.CaptureFixture[str], *words: str, program: str = cli.PROGRAM) -> list[str]:
    """Return the lines for a shell."""
    assert cli.main(["__complete", *words], program=program) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["wh"], ["why\tsay why a pod waits, and what would let it in", ":4"]),
        (["qqq"], [":4"]),
        (["qqq", ""], [":4"]),
        (["why", "-o", ""], ["text", "wide", "json", "yaml", ":4"]),
        (["why", "-o", "j"], ["json", ":4"]),
        (["why", "--output=y"], ["--output=yaml", ":4"]),
        (["why", "--from", "x"], [":0"]),
        (["why", "--from="], [":0"]),
        (["why", "--context", ""], [":4"]),
        (["completion", ""], [*SHELLS, ":4"]),
        (["completion", "b"], ["bash", ":4"]),
        (["fit", "--kubec"], ["--kubeconfig\tdefault: $KUBECONFIG or ~/.kube/config", ":4"]),
        (["check", ""], [":4"]),
    ],
)
def test_candidates(capsys: pytest.CaptureFixture[str], words: list[str], want: list[str]) -> None:
    """Candidates with what they are, and whether a file may be meant."""
    assert offered(capsys, *words) == want


def test_every_flag_is_offered_with_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, of every command."""
    for name, parser in cli.parsers()[1].items():
        lines = offered(capsys, name, "-")
        flags = {option for action in parser._actions for option in action.option_strings}
        assert {line.partition("\t")[0] for line in lines[:-1]} == flags
        assert all(line.partition("\t")[2] for line in lines[:-1])


def test_the_plugin_offers_its_own_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """It has no `run`."""
    names = [line.partition("\t")[0] for line in offered(capsys, "", program=cli.PLUGIN)]
    assert "why" in names
    assert "run" not in names


async def test_names_of_pods(tmp_path: Path) -> None:
    """Those of the namespace; none if they cannot be listed, and no error."""
    pods = [pod("train-0"), pod("train-1"), pod("web")]
    config = tmp_path / "kubeconfig"
    async with listing(lists={"/api/v1/namespaces/ml/pods": pods}) as server:
        config.write_text(kubeconfig(server.url))

        def completed(*words: str) -> list[str]:
            command = [sys.executable, "-m", "neuron_scheduler", "__complete", "why", *words]
            environment = os.environ | {"KUBECONFIG": str(config)}
            return subprocess.run(
                command, capture_output=True, text=True, check=True, env=environment
            ).stdout.splitlines()

        assert await anyio.to_thread.run_sync(completed, "-n", "ml", "tr") == ["train-0", "train-1", ":4"]
        assert await anyio.to_thread.run_sync(completed, "-n", "other", "") == [":4"]
        assert await anyio.to_thread.run_sync(completed, "-n", "ml", "web", "") == [":4"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The shell accepts it; bash completes with it."""
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "neuron-scheduler __complete" in script
    program = shutil.which(shell)
    if program is None:
        assert shell != "bash"
        return
    (tmp_path / "script").write_text(script)
    subprocess.run([program, "-n", str(tmp_path / "script")], check=True)
    if shell == "bash":
        (tmp_path / "neuron-scheduler").write_text(f'#!/bin/sh\nexec {sys.executable} -m neuron_scheduler "$@"\n')
        (tmp_path / "neuron-scheduler").chmod(0o755)
        lines = (
            f"source {tmp_path}/script; COMP_WORDS=(neuron-scheduler why -o ''); COMP_CWORD=3; _neuron_scheduler;"
            ' printf "%s\\n" "${COMPREPLY[@]}"'
        )
        environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(Path.cwd())}
        done = subprocess.run([program, "-c", lines], capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.split() == ["text", "wide", "json", "yaml"]

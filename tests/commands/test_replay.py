"""`replay` of the journal that a scheduler has written: the same decisions, and those of another profile."""

import json
import re
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from neuron_scheduler import cli
from neuron_scheduler.commands.replay_text import lines
from neuron_scheduler.explain.answers.explanation import PodSummary
from neuron_scheduler.explain.answers.replay_report import DifferentDecision, ReplayReport, Waits
from neuron_scheduler.model.node import HOSTNAME_LABEL
from neuron_scheduler.sandbox import fleet
from neuron_scheduler.scheduling.queue.queued_pod import Place
from neuron_scheduler.telemetry.paragraphs import Paragraphs
from tests.control_plane.objects import pod_manifest
from tests.support.patience import PATIENCE
from tests.test_app import process

PODS = {"pinned": 1, "beside": 1, "large": 16, "seven": 7}


OTHER = """
apiVersion: neuron-scheduler/v1
kind: NeuronSchedulerConfiguration
profiles:
  - schedulerName: my-scheduler
    preferences: [TaintToleration]
"""


@pytest.fixture
async def journal(tmp_path: Path) -> str:
    """Run a scheduler that places all but one of a few pods, and return its journal."""
    path = str(tmp_path / "decisions.jsonl")
    async with process(decision_journal=path) as running, anyio.create_task_group() as tasks:
        running.server.create(fleet.node("n2", "trn1.32xlarge"))
        tasks.start_soon(running.run)
        await running.scheduling()
        parts = running.app.parts
        for placed, (name, devices) in enumerate(PODS.items()):
            manifest = pod_manifest(name, neuron=devices)
            if name == "pinned":
                manifest["spec"]["nodeSelector"] = {HOSTNAME_LABEL: "n2"}
            running.server.create(manifest)
            with anyio.fail_after(PATIENCE):
                while parts.cluster.pod_count + parts.queue.count(Place.UNSCHEDULABLE) <= placed:
                    await anyio.lowlevel.checkpoint()
        running.signal()
        assert await running.end() == ""
    return path


def replay(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    """Run the command in a thread's place, check its exit code, and return its output or its error."""
    assert cli.main(["replay", *arguments]) == code
    out, err = capsys.readouterr()
    assert (out == "") == (code == 2)
    return str(out + err)


async def test_the_same_decisions(journal: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The same program decides as it did."""
    assert re.fullmatch(r"4 decisions in \d+s: all are the same\.\n", replay(capsys, journal, code=0))
    answer = json.loads(replay(capsys, journal, "-o", "json", code=0))
    assert (answer["decisions"], answer["different"], answer["recorded"]) == (4, 0, None)


async def test_another_profile(journal: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Decisions that differ are shown with the reason, and what that would have meant for all pods."""
    config = tmp_path / "other.yaml"
    config.write_text(OTHER)
    answer = json.loads(replay(capsys, journal, "--config", str(config), "-o", "json", code=1))
    assert answer["different"] == len(answer["differences"]) > 0
    assert (answer["recorded"]["pods"], answer["other"]["pods"]) == (4, 4)
    text = replay(capsys, journal, "--config", str(config), code=1)
    assert "With this profile 1 pod more would have waited (2 in place of 1, of 4)" in " ".join(text.split())
    assert "why:  n1 is older, and equal in all preferences" in text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is no decision journal"),
        ('{"record":"At","at":1}\n', "is no decision journal"),
        ("no journal\n", "line 1: it is no record of the journal"),
        ('{"record":"Started","at":1,"version":"1","profiles":[]}\n\x1b[2J\n', "line 2: it is no record"),
    ],
)
def test_what_is_no_journal(content: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, and exit code 2."""
    path = tmp_path / "journal"
    path.write_text(content)
    said = replay(capsys, str(path), code=2)
    assert says in said
    assert said.count("\n") == 1
    assert "cannot read" in replay(capsys, str(tmp_path / "none"), code=2)


def test_a_line_that_is_cut_off_ends_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After a crash what is there can be replayed."""
    path = tmp_path / "journal"
    path.write_text('{"record":"Started","at":1,"version":"1","profiles":[]}\n{"record":"A')
    assert "no decision that could be made again" in replay(capsys, str(path), code=0)


@pytest.mark.parametrize(("at", "says"), [(1e300, "9999-12-31T23:59:59Z"), (-1e300, "1970-01-01T00:00:00Z")])
def test_a_time_that_no_calendar_has(at: float, says: str) -> None:
    """A file may have any number."""
    difference = DifferentDecision(at, PodSummary("ml", "p"), "a", "b", "why")
    assert f"{says} ml/p" in list(lines(ReplayReport(at, at, 1, 1, (difference,)), Paragraphs()))


def test_the_text() -> None:
    """Figures of the answer, wrapped; names from the cluster cannot control the terminal."""
    pod = PodSummary("ml", "evil\x1b[31m", asks="16 Neuron devices")
    difference = DifferentDecision(0.0, pod, "a (devices 0-15)", "b (devices 0-15)", "SmallestBlock prefers b to a")
    report = ReplayReport(
        0.0, 7200.0, 1200, 12, (difference,) * 12, Waits(1200, 40, 3, 9000.0, 600.0), Waits(1200, 26, 3, 4000.0, 300.0)
    )
    text = list(lines(report, Paragraphs(width=80)))
    assert "\x1b" not in "".join(text)
    assert max(map(len, text)) <= 80
    assert text[0] == "1200 decisions in 120m: 12 are other ones now."
    assert "14 pods fewer would have waited (26 in place of 40, of 1200)" in " ".join(text)
    assert text.count("  why:  SmallestBlock prefers b to a") == 10
    assert text[-1] == "2 more; -o wide shows more of them."
    nobody = ReplayReport(0.0, 0.0, 0, 0, (), Waits(0, 0, 0, 0.0, 0.0), Waits(0, 0, 0, 0.0, 0.0))
    assert list(lines(nobody, Paragraphs())) == [
        "The journal has no decision that could be made again.",
        "The journal has no pods with a schedulerName of this configuration.",
    ]
    assert list(lines(report, Paragraphs(), every=True)).count("  why:  SmallestBlock prefers b to a") == 12

"""`fit` from files and from an API server: answers, forms, exit codes, and one sentence for every mistake."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuron_scheduler import cli
from tests.capture.test_files import a_list, node, pod, written

ITEMS = [node(), pod("holder", "0,1,2,3", neuron=4, nodeName="trn1-a"), pod("large", neuron=16, phase="Pending")]
JOB: dict[str, Any] = {
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {
        "parallelism": 5,
        "template": {
            "spec": {
                "schedulerName": "my-scheduler",
                "containers": [{"name": "main", "resources": {"limits": {"aws.amazon.com/neuron": 4}}}],
            }
        },
    },
}


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """Write the cluster as kubectl does, and return the path."""
    (path,) = written(tmp_path, json.dumps(a_list(ITEMS)))
    return path


@pytest.fixture
def job(tmp_path: Path) -> str:
    """Write a Job of five pods with four devices each, and return the path."""
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(JOB))
    return str(path)


def fit(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    """Run the command, check its exit code, and return its output or its error."""
    assert cli.main(["fit", *arguments]) == code
    out, err = capsys.readouterr()
    assert (out == "") == (code == 2)
    return out + err


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--devices", "8"], 0, "1 replica fits now (8 Neuron devices each)."),
        (["--devices", "4", "--replicas", "3"], 0, "3 of 3 replicas fit now (4 Neuron devices each)."),
        (["--devices", "4", "--replicas", "4"], 1, "3 of 4 replicas fit now (4 Neuron devices each)."),
        (["--devices", "16"], 1, "0 replicas fit now (16 Neuron devices each)."),
        (["--devices", "4,4"], 0, "1 replica fits now (8 Neuron devices (4 + 4) each)."),
        (["--cores", "1", "--replicas", "24"], 0, "24 of 24 replicas fit now (1 Neuron core each)."),
        (["--cpu", "1", "--memory", "1Gi", "--replicas", "1"], 0, "1 of 1 replica fits now."),
        (["--devices", "1", "--instance-type", "trn2.48xlarge"], 1, "0 replicas fit now (1 Neuron device each)."),
    ],
)
def test_a_size(dump: str, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, says: str) -> None:
    """The exit code is 0 if all that were asked for fit."""
    answer = " ".join(fit(capsys, *arguments, "--from", dump, code=code).split())
    assert says in answer
    assert "1 pod with Neuron is Pending already" in answer


def test_a_file(dump: str, job: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As many replicas as it says, or as the arguments say."""
    assert "3 of 5 replicas of Job train fit now" in fit(capsys, "-f", job, "--from", dump, code=1)
    assert "2 of 2 replicas of Job train" in fit(capsys, "-f", job, "--replicas=2", "--from", dump, code=0)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_documents(dump: str, job: str, capsys: pytest.CaptureFixture[str], form: str) -> None:
    """The answer as /v1/fit gives it, and notes on the cluster."""
    answer = yaml.safe_load(fit(capsys, "-f", job, "--from", dump, "-o", form, code=1))
    assert (answer["asked"], answer["fitting"], answer["limit"]["cause"]) == (5, 3, "capacity")
    assert [pod["ids"] for pod in answer["placed"]] == [[4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    assert any("the files have no" in note for note in answer["notes"])


def test_another_scheduler_s_pods(dump: str, job: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A note says that another scheduler would place them."""
    Path(job).write_text(Path(job).read_text().replace("schedulerName: my-scheduler", "schedulerName: theirs"))
    assert "The schedulerName is theirs" in fit(capsys, "-f", job, "--from", dump, code=1)


def test_a_part_of_another_scheduler(dump: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The note names the role whose pods another scheduler would place."""
    path, template = tmp_path / "mpijob.yaml", JOB["spec"]["template"]
    launcher = {"spec": {"containers": [{"name": "main"}]}}
    roles = {"Launcher": {"template": launcher}, "Worker": {"replicas": 2, "template": template}}
    path.write_text(yaml.safe_dump({"kind": "MPIJob", "metadata": {"name": "m"}, "spec": {"mpiReplicaSpecs": roles}}))
    said = " ".join(fit(capsys, "-f", str(path), "--from", dump, code=0).split())
    assert "The schedulerName of launcher is default-scheduler: another scheduler places these pods" in said


def test_a_job_that_makes_fewer_pods_than_its_group_has(
    dump: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They would wait for ever."""
    group = {f"pod-group.scheduling.sigs.k8s.io/{key}": value for key, value in (("name", "g"), ("min-available", "8"))}
    template = {"metadata": {"labels": group}, "spec": JOB["spec"]["template"]["spec"]}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**JOB, "spec": {"parallelism": 3, "template": template}}))
    said = fit(capsys, "-f", str(path), "--from", dump, code=1)
    assert "0 of 1 group of Job train fit now" in said
    assert "What limits the rest (group)\n  Group default/g asks for 8 pods, but the file makes 3." in said
    assert "fit" in fit(capsys, "-f", str(path), "--replicas", "8", "--from", dump, code=1)


def test_a_job_that_starts_with_fewer_pods_than_the_file_makes(
    dump: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not all of them fit, and no Event of theirs would say that all are needed."""
    group = {f"pod-group.scheduling.sigs.k8s.io/{key}": value for key, value in (("name", "g"), ("min-available", "2"))}
    template = {"metadata": {"labels": group}, "spec": JOB["spec"]["template"]["spec"]}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**JOB, "spec": {"parallelism": 5, "template": template}}))
    said = " ".join(fit(capsys, "-f", str(path), "--from", dump, code=1).split())
    assert "Group default/g: 3 of its 5 pods fit at once, and it starts with 2. For the next one: 0/1 nodes" in said


def test_standard_input(dump: str) -> None:
    """`-` is the workload, as with kubectl."""
    command = [sys.executable, "-m", "neuron_scheduler", "fit", "-f", "-", "--from", dump]
    ended = subprocess.run(command, input=json.dumps(JOB), capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "3 of 5 replicas of Job train fit now" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "say what is to fit: -f FILE, or a size such as --devices 8 --replicas 4"),
        (["--devices", "8", "-f", "x"], "the file of -f says already what a pod asks for"),
        (["--devices", "0"], "devices: '0' is no number from 1 to 10000"),
        (["--devices", "1e3"], "devices: '1e3' is no number"),
        (["--devices", "8", "--cores", "2"], "a pod's Neuron ids are either devices or cores"),
        (["--devices", "8", "--cpu", "much"], "its pod cannot be read"),
        (["-f", "/no/such"], "/no/such cannot be read"),
        (["-f", "/"], "/ cannot be read: Is a directory"),
        (["-f", "-", "--from", "-"], "-f and --from cannot both read standard input"),
        (["-f", "x", "--scheduler-name", "y"], "leave out the size, or the file"),
        (["--device", "8"], "unknown flag --device; did you mean --devices?"),
    ],
)
def test_mistakes(dump: str, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    """One sentence, and 2."""
    error = fit(capsys, *arguments, "--from", dump, code=2)
    assert says in error
    assert error.count("\n") == 1

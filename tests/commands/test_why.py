"""`why` from files and from an API server: answers, forms, exit codes, and one sentence for every mistake."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuron_scheduler import cli
from neuron_scheduler.capture.collection import Capture
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.commands.why import find_pod, parse_name
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.model.pod import Owner
from neuron_scheduler.telemetry.errors import ConfigurationError
from tests.capture.test_files import a_list, node, pod, written
from tests.support.beside import beside
from tests.support.builders import pod as built
from tests.support.listing_server import LEASE, NODES, PODS, kubeconfig, listing, workload

Capsys = pytest.CaptureFixture[str]

GATED = pod("gated", neuron=1, phase="Pending")
GATED["spec"]["schedulingGates"] = [{"name": "quota"}]
ITEMS = [
    node(),
    pod("holder", "0,1,2,3", neuron=4, nodeName="trn1-a"),
    pod("small", neuron=4, phase="Pending"),
    pod("large", neuron=16, phase="Pending"),
    pod("theirs", neuron=16, phase="Pending", scheduler_name="default-scheduler"),
    pod("plain", phase="Pending"),
    GATED,
]


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """Write the cluster as kubectl does, and return the path."""
    (path,) = written(tmp_path, json.dumps(a_list(ITEMS)))
    return path


def ask(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    """Run the command, check its exit code, and return its output or its error."""
    assert cli.main(["why", *arguments]) == code
    out, err = capsys.readouterr()
    assert (out == "") == (code == 2)
    return out + err


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("large", 1, "0/1 nodes are available"),
        ("small", 0, "default/small fits now: it would be assigned to trn1-a (devices 4-7)"),
        ("holder", 0, "default/holder is on trn1-a (devices 0-3)"),
        ("default/gated", 1, "quota"),
        ("pod/theirs", 1, "default-scheduler"),
    ],
)
def test_a_pod(dump: str, capsys: pytest.CaptureFixture[str], name: str, code: int, says: str) -> None:
    """The exit code is 0 if it fits or has a node, 1 if it waits."""
    assert says in " ".join(ask(capsys, name, "--from", dump, code=code).split())


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_documents(dump: str, capsys: pytest.CaptureFixture[str], form: str) -> None:
    """They are the answer's JSON form, with the notes of the capture."""
    answer: Any = yaml.safe_load(ask(capsys, "large", "--from", dump, "-o", form, code=1))
    assert (answer["verdict"], answer["cause"], answer["pod"]["asks"]) == ("waits", "capacity", "16 Neuron devices")
    assert sum(group["nodes"] for group in answer["groups"]) == 1
    assert any(note.startswith("the files have no ") for note in answer["notes"])
    of_node: Any = yaml.safe_load(ask(capsys, "large", "--node=trn1-a", "--from", dump, "-o", form, code=1))
    assert [group["plugin"] for group in of_node["groups"]] == ["NodeResourcesFit", "NeuronTopology"]


def test_one_node(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What every filter says of it; a node that is not there is said to be none."""
    assert "trn1-a" in ask(capsys, "small", "--node", "trn1-a", "--from", dump, code=0)
    assert "there is no node none" in ask(capsys, "small", "--node", "none", "--from", dump, code=2)


def test_what_waits(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a pod: those with Neuron or our name (a resource may be mistyped), oldest first, with their causes."""
    lines = ask(capsys, "--from", dump, code=1).splitlines()
    assert [line.split()[1] for line in lines[1:6]] == ["gated", "large", "plain", "small", "theirs"]
    assert [line.split()[-1] for line in lines[1:6]] == ["gated", "capacity", "fits", "fits", "capacity"]
    assert "Note: default-scheduler decides these pods: default/theirs. If my-scheduler is to decide," in " ".join(
        lines
    )
    assert ask(capsys, "-A", "--from", dump, code=1).splitlines()[:6] == lines[:6]
    assert "No pod that asks for Neuron is Pending in namespace ml." in ask(capsys, "-n", "ml", "--from", dump, code=0)
    answer = json.loads(ask(capsys, "--from", dump, "-o", "json", code=1))
    assert (answer["total"], answer["pods"][1]["cause"]) == (5, "capacity")


def test_a_name_that_no_scheduler_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It does not fit, whatever the nodes are, unless the scheduler's configuration has its name."""
    typo = pod("typo", neuron=4, phase="Pending", scheduler_name="my-schedular")
    files = written(tmp_path, json.dumps(a_list([node(), typo])))
    said = ask(capsys, "typo", "--from", *files, code=1).splitlines()
    assert said[0].startswith("default/typo has been Pending")
    assert "No scheduler that is known here serves my-schedular; if one does, it decides. If" in " ".join(said)
    assert "set schedulerName: my-scheduler in its template, and create the pod again." in " ".join(said)
    assert "would take the pod" not in "".join(said)
    assert "With schedulerName my-scheduler: default/typo fits now: it would be assigned to trn1-a" in "".join(said)
    (row,) = [line for line in ask(capsys, "--from", *files, code=1).splitlines() if "scheduler_name" in line]
    assert row.split()[:2] == ["default", "typo"]
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: neuron-scheduler/v1\nkind: NeuronSchedulerConfiguration\n"
        "profiles: [{schedulerName: my-scheduler}, {schedulerName: my-schedular}]\n"
    )
    assert "default/typo fits now" in ask(capsys, "typo", "--from", *files, f"--config={config}", code=0)


def test_a_pod_that_chooses_its_cores(tmp_path: Path, capsys: Capsys) -> None:
    """Pending or bound, read from a file or an API server."""
    pods = [pod("pending", neuron=4, phase="Pending"), pod("bound", "0,1,2,3", neuron=4, nodeName="trn1-a")]
    for each, name in zip(pods, ("NEURON_RT_VISIBLE_CORES", "NEURON_VISIBLE_DEVICES"), strict=True):
        each["spec"]["containers"][0]["env"] = [{"name": "RANK", "value": "0"}, {"name": name, "value": "0-7"}]
    pods.append(pod("plain", neuron=4, phase="Pending"))
    files = written(tmp_path, json.dumps(a_list([node(), *pods])))
    for name, has_note in (("pending", True), ("bound", True), ("plain", False)):
        of_files = ask(capsys, name, "--from", *files, code=0)
        run_against({NODES: [node()], PODS: pods}, tmp_path, name)
        for said in (of_files, capsys.readouterr().out):
            assert ("its program may use cores of other pods" in " ".join(said.split())) is has_note


def test_pods_that_others_decide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They do not fit in the list, and names that may be mistyped are said first."""
    names = ("default-scheduler", "volcano", "yunikorn", "custom-scheduler", "my-schedular")
    pods = [pod(f"p{number}", neuron=4, phase="Pending", scheduler_name=name) for number, name in enumerate(names)]
    files = written(tmp_path, json.dumps(a_list([node(), *pods])))
    lines = ask(capsys, "--from", *files, code=1).splitlines()
    assert [line.split()[-1] for line in lines[1:6]] == ["scheduler_name"] * 5
    assert "my-scheduler does not decide it." in lines_of_wide(capsys, files)[1]
    note = "Note: No scheduler that is known here serves the schedulerName of default/p4 (my-schedular),"
    assert any(line.startswith(note) for line in lines)


def lines_of_wide(capsys: pytest.CaptureFixture[str], files: list[str]) -> list[str]:
    """Return the lines of the list with messages."""
    return ask(capsys, "--from", *files, "-o", "wide", code=1).splitlines()


def test_the_name_of_a_job_or_a_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names its pods, the pending ones first, with the type or without."""
    pods = [pod(f"train-{number}", neuron=1, phase="Pending") for number in range(2)]
    pods[0]["spec"]["nodeName"] = "trn1-a"
    for each in pods:
        each["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "train-5d4f", "uid": "u", "controller": True}
        ]
        each["metadata"]["labels"] = {
            "pod-group.scheduling.sigs.k8s.io/name": "run",
            "pod-group.scheduling.sigs.k8s.io/min-available": "2",
        }
    files = written(tmp_path, json.dumps(a_list([node(), *pods])))
    for name in ("train", "deployment/train", "train-5d4f", "run"):
        said = ask(capsys, name, "--from", *files, code=2)
        assert "has 2 pods: default/train-1 and default/train-0" in said


def test_another_profile(dump: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the scheduler's configuration, its names are ours."""
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: neuron-scheduler/v1\nkind: NeuronSchedulerConfiguration\n"
        "profiles: [{schedulerName: default-scheduler}]\n"
    )
    answer = json.loads(ask(capsys, "theirs", "--from", dump, f"--config={config}", "-o", "json", code=1))
    assert not any("another scheduler" in note for note in answer["notes"])
    config.write_text("kind: Nonsense\n")
    assert "config.yaml" in ask(capsys, "theirs", "--from", dump, f"--config={config}", code=2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["lrage"], "there is no pod default/lrage, or it has ended"),
        (["a/b/c"], "'a/b/c' is not a pod"),
        (["--node", "x"], "--node needs a POD"),
        (["x", "--from=/no/such"], "/no/such cannot be read"),
        (["x", "-o", "xml"], "invalid choice: 'xml'"),
        (["x", "--request-timeout=soon"], "--request-timeout: 'soon' is not a duration"),
        (["x", "y"], "unexpected argument 'y'"),
        (["x", "--contxt=y"], "unknown flag --contxt; did you mean --context?"),
    ],
)
def test_mistakes(dump: str, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    """One sentence, and 2."""
    error = ask(capsys, *arguments, "--from", dump, code=2)
    assert says in error
    assert error.count("\n") == 1


def test_a_mistake_of_ours_is_one_sentence(
    dump: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says where, and there is no traceback."""
    monkeypatch.setattr("neuron_scheduler.explain.why.explain_pod", lambda *_, **__: 1 // 0)
    error = ask(capsys, "small", "--from", dump, code=2)
    assert "a mistake in this program (" in error
    assert "ZeroDivisionError" in error
    assert error.count("\n") == 1


def run_against(lists: dict[str, Any], folder: Path, *arguments: str, **fields: Any) -> int:
    """Run the command against a server that lists this."""
    with beside(listing(lists=lists, **{"default": 403, **fields})) as server:
        config = folder / "kubeconfig"
        config.write_text(kubeconfig(server.url))
        return cli.main(["why", *arguments, f"--kubeconfig={config}"])


def test_a_live_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With few rights there is an answer, and notes on what is not considered."""
    lists = {NODES: ITEMS[:1], PODS: ITEMS[1:]}
    assert run_against(lists, tmp_path, "large") == 1
    out, err = capsys.readouterr()
    assert "0/1 nodes are available" in out
    assert "persistentvolumes cannot be listed (the right is missing)" in " ".join(out.split())
    assert err == ""


@pytest.mark.parametrize(
    ("lists", "default", "says"),
    [
        ({}, 403, "what is free depends on all nodes and pods, and you may not list "),
        ({}, 401, "the API server does not accept our credentials (401)"),
        ({NODES: [], PODS: 500}, 403, "500"),
    ],
)
def test_a_live_cluster_that_does_not_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lists: dict[str, Any], default: int, says: str
) -> None:
    """One sentence, and 2."""
    assert run_against(lists, tmp_path, "large", default=default) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert says in err
    assert ("--ask" in err) == (default == 403 and not lists)


CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/c"
OURS = "/apis/apps/v1/namespaces/kube-system/deployments"
INSTALLED = {OURS: [workload("s", args=["run"], config_maps=["c"])]}
BATCH = """
apiVersion: neuron-scheduler/v1
kind: NeuronSchedulerConfiguration
profiles: [{schedulerName: batch}]
"""


@pytest.mark.parametrize(
    ("data", "answers"),
    [
        (BATCH, ("default/batch fits now", "serves my-scheduler; if one does")),
        ("kind: NeuronSchedulerConfiguration", ("serves batch; if one does", "default/small fits now")),
        ("", ("serves batch; if one does", "default/small fits now")),
    ],
    ids=["read", "wrong", "not allowed"],
)
def test_the_installed_configuration(tmp_path: Path, capsys: Capsys, data: str, answers: tuple[str, str]) -> None:
    """Its profiles are known; else, those of the defaults are."""
    pods = [pod("small", neuron=4, phase="Pending"), pod("batch", neuron=4, phase="Pending", scheduler_name="batch")]
    objects = {CONFIG_MAP: {"data": {"config.yaml": data}}} if data else {}
    for name, says in zip(("batch", "small"), answers, strict=True):
        run_against({NODES: ITEMS[:1], PODS: pods, **INSTALLED}, tmp_path, name, objects=objects)
        assert says in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("lease", "reason"),
    [
        ({"spec": {}}, "is held by nobody"),
        ({"spec": {"holderIdentity": "a_b", "renewTime": "2020-01-01T00:00:00.000000Z"}}, "was last renewed "),
        (404, ""),
        ({"spec": {"holderIdentity": "a_b"}}, ""),
        (403, ""),
    ],
    ids=["released", "expired", "absent", "held", "not allowed"],
)
def test_nobody_leads(tmp_path: Path, capsys: Capsys, lease: Any, reason: str) -> None:
    """That comes before what a replica would do; it is left out where the Lease cannot be read."""
    answer = {"default": lease} if isinstance(lease, int) else {"objects": {LEASE: lease}}
    lists = {NODES: ITEMS[:1], PODS: ITEMS[2:3]}
    for name in ("small", ""):
        run_against(lists, tmp_path, *filter(None, [name]), **answer)
        out = " ".join(capsys.readouterr().out.split())
        before = "No replica leads, so nothing is scheduled: the Lease kube-system/my-scheduler "
        assert (before in out, reason in out) == (bool(reason), True)
        assert out.startswith(before) is bool(reason and name)


def test_nobody_has_ever_led(tmp_path: Path, capsys: Capsys) -> None:
    """A Deployment is there, and no Lease; without a Deployment, a replica without election may run elsewhere."""
    lists = {NODES: ITEMS[:1], PODS: ITEMS[2:3]}
    run_against({**lists, **INSTALLED}, tmp_path, "small", default=404)
    assert capsys.readouterr().out.startswith("No replica has ever led, so nothing is scheduled: there is no Lease")
    run_against({**lists, OURS: []}, tmp_path, "small", default=404)
    assert capsys.readouterr().out.startswith("default/small fits")


def test_nobody_has_to_lead(tmp_path: Path, capsys: Capsys) -> None:
    """A single replica without election needs no Lease."""
    lists = {NODES: ITEMS[:1], PODS: ITEMS[2:3], OURS: [workload("s", args=["run", "--leader-elect=false"])]}
    run_against(lists, tmp_path, "small", objects={LEASE: {"spec": {}}})
    assert capsys.readouterr().out.startswith("default/small fits")


JOB = Owner("batch/v1", "Job", "train")
THREE = (built("train-0", owner=JOB), built("train-1", owner=JOB), built("train-0", namespace="ml", owner=JOB))


def capture() -> Capture:
    return Capture(
        cluster=Cluster(),
        pods={each.key: each for each in THREE},
        waiting=THREE,
        unreadable={"default/odd\x1b[2J": Malformed("Pod", "default/odd\x1b[2J", "no name", node_name="n")},
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("train-0", ("", "train-0")),
        ("ml/train-0", ("ml", "train-0")),
        ("pod/train-0", ("", "train-0")),
        ("pods/x", ("", "x")),
        ("Po/x", ("", "x")),
    ],
)
def test_forms(text: str, want: tuple[str, str]) -> None:
    """A name, with its namespace, or with the type."""
    assert parse_name(text) == want


@pytest.mark.parametrize("text", ["/", "a/", "/b", "a/b/c", "pod/a/b"])
def test_no_names(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ConfigurationError, match="write NAME, NAMESPACE/NAME or pod/NAME"):
        parse_name(text)


def test_found() -> None:
    """In the namespace of the arguments, or in its own."""
    assert find_pod(capture(), "train-0", "default") is THREE[0]
    assert find_pod(capture(), "pod/train-0", "ml") is THREE[2]
    assert find_pod(capture(), "ml/train-0", "default") is THREE[2]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("qqq", "there is no pod default/qqq, or it has ended"),
        ("job/train", "there is no pod default/train, or it has ended; train has 2 pods: default/train-0 and default"),
        ("odd\x1b[2J", r"pod default/odd\\x1b\[2J on node n cannot be read: no name"),
    ],
)
def test_not_found(text: str, says: str) -> None:
    """The error says what is known of it."""
    with pytest.raises(ConfigurationError, match=says):
        find_pod(capture(), text, "default")

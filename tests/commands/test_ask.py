"""Questions to the running scheduler: where a token may go, which namespace is meant, and what answers mean."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neuron_scheduler import cli
from neuron_scheduler.explain.answers import (
    LEFT_OUT,
    Explanation,
    Fit,
    PodSummary,
    Verdict,
    Waiting,
    WaitingEntry,
    to_json,
)
from tests.support.beside import beside
from tests.support.scripted_server import Answer, answer, refuse, scripted

Ask = Callable[..., tuple[int, str, str, list[Any]]]
"""Exit code, output, error and the requests that the scheduler got."""

EXPLANATION = Explanation(PodSummary("ml", "a"), Verdict.WAITS, "0/1 nodes are available: 1 Too bad.")
WAITING = Waiting(
    tuple(WaitingEntry(PodSummary(namespace, "a"), "capacity") for namespace in ("ml", "other", "")), total=3
)


def kubeconfig(folder: Path, token: str = "secret") -> Path:
    """Write a kubeconfig with a token and a namespace; nobody serves its API server."""
    path = folder / "kubeconfig"
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "me", "namespace": "ml"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {"token": token}}],
    }
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Return what runs a command against a scheduler that answers so."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path)))

    def run(*script: Answer, command: tuple[str, ...] = ("why", "a")) -> tuple[int, str, str, list[Any]]:
        with beside(scripted(*script)) as (server, _):
            code = cli.main([*command, f"--ask={server.url}"])
        return code, *capsys.readouterr(), server.seen

    return run


def test_a_pod(ask: Ask) -> None:
    """The user's token, the namespace of the context, and the answer in our words; the exit code is the answer's."""
    code, out, err, (seen,) = ask(answer(to_json(EXPLANATION)))
    assert (code, err) == (1, "")
    assert "0/1 nodes are available: 1 Too bad." in out
    assert (seen.path, seen.query) == ("/v1/why", {"namespace": "ml", "pod": "a"})
    assert seen.headers["Authorization"] == "Bearer secret"


def test_a_namespace_whose_pods_are_hidden(ask: Ask) -> None:
    """That none is seen there does not mean that none waits."""
    hidden = Waiting((WaitingEntry(PodSummary("", ""), "capacity"),), total=1, notes=(LEFT_OUT,))
    code, out, err, _ = ask(answer(to_json(hidden)), command=("why",))
    assert (code, out) == (2, "")
    assert "you may not get the pods of namespace ml: kubectl auth can-i get pods --namespace ml" in err
    assert ask(answer(to_json(hidden)), command=("why", "-A"))[0] == 1


def test_what_waits(ask: Ask) -> None:
    """Only the namespace's pods, unless all are asked for; the scheduler is told whose names are to be shown."""
    for flags, names in ((), ["ml"]), (("-n", "other"), ["other"]), (("-A",), ["ml", "other", ""]):
        command = ("why", "-o", "json", *flags)
        code, out, _, (seen,) = ask(answer(to_json(WAITING)), command=command)
        assert (code, seen.query) == (1, {"namespace": names[0]})
        assert [line["pod"]["namespace"] for line in json.loads(out)["pods"]] == names


def test_pods_in_the_list_that_others_decide(ask: Ask) -> None:
    """As where the cluster is read: the note has the remedy."""
    typo = PodSummary("ml", "typo", scheduler_name="my-schedular")
    waiting = Waiting((*WAITING.pods, WaitingEntry(typo, "scheduler_name")), total=4)
    for command in (("why",), ("why", "-A")):
        _, out, _, _ = ask(answer(to_json(waiting)), command=command)
        note = (
            "Note: No scheduler that is known here serves the schedulerName of ml/typo (my-schedular). If my-scheduler"
        )
        assert note in " ".join(out.split())


def test_the_pods_of_a_job(ask: Ask) -> None:
    """`job/a` is no pod of the namespace `job`; the scheduler's error names the pods of `a`."""
    assert ask(refuse(404, "NotFound", "a has 2 pods"), command=("why", "job/a"))[3][0].query["namespace"] == "ml"


@pytest.mark.parametrize(
    ("flags", "query", "kind"),
    [
        (["--devices=8", "--instance-type=x"], {"devices": "8", "instanceType": "x"}, ""),
        (["--cores=2", "--replicas=3", "-n", "b"], {"cores": "2", "replicas": "3", "namespace": "b"}, ""),
        (["-f", "FILE", "--replicas=3"], {"replicas": "3", "namespace": "ml"}, "Job"),
    ],
)
def test_what_fits(ask: Ask, tmp_path: Path, flags: list[str], query: dict[str, str], kind: str) -> None:
    """A size is a query, and a workload is the body, in JSON."""
    path = tmp_path / "job.yaml"
    path.write_text("kind: Service\n---\nkind: Job\nspec: {}\n")
    command = ("fit", *(str(path) if flag == "FILE" else flag for flag in flags))
    code, out, err, (seen,) = ask(answer(to_json(Fit(asked=3, fitting=3))), command=command)
    assert (code, err) == (0, "")
    assert "3 of 3 replicas fit now." in out
    assert (seen.path, seen.query) == ("/v1/fit", query)
    assert (json.loads(seen.body)["kind"] if seen.body else "") == kind


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (refuse(403, "Forbidden", "you may not get pods in namespace ml"), "you may not get pods in namespace ml"),
        (refuse(401, "Unauthorized", "send a token"), "send a token"),
        (answer("<html>"), "is not understood"),
        (answer("[" * 10_000), "is not understood"),
        (answer({"pod": 7}), "is not understood"),
        (answer([]), "is not understood"),
    ],
    ids=["forbidden", "unknown", "a page", "deep", "another shape", "a list"],
)
def test_other_answers(ask: Ask, reply: Answer, says: str) -> None:
    """One sentence, and 2."""
    code, out, err, _ = ask(reply, reply)  # after a 401 it asks again
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://scheduler.example.com", "your token would be sent to scheduler.example.com without TLS"),
        ("http://10.0.0.1:1", "without TLS"),
        ("ftp://localhost", "is not an address"),
        ("localhost:10251", "is not an address"),
        ("http://127.0.0.1:1", "127.0.0.1:1"),
    ],
)
def test_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str, says: str
) -> None:
    """A token goes to this host, or over TLS."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path)))
    assert cli.main(["why", "a", f"--ask={url}"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert says in err

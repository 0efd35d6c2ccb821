"""A cluster from files: every form that kubectl writes, and nothing in a file that is worse than one sentence."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from neuron_scheduler.capture import documents, files
from neuron_scheduler.capture.collection import Capture
from neuron_scheduler.capture.files import from_files
from neuron_scheduler.telemetry.errors import ConfigurationError
from tests.control_plane.objects import node_manifest, pod_manifest
from tests.support.thoroughness import examples

Object = dict[str, Any]


def node(name: str = "trn1-a", **fields: Any) -> Object:
    """Return a node as kubectl prints it."""
    manifest = node_manifest(name, **fields)
    manifest["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": "2026-11-20T08:00:00Z"}
    return manifest


def pod(name: str, ids: str = "", phase: str = "Running", **fields: Any) -> Object:
    """Return a pod as kubectl prints it, with ids in AWS's annotation."""
    manifest = pod_manifest(name, annotations={"AWS_NEURON_IDS": ids} if ids else {}, **fields)
    manifest["metadata"] |= {"uid": f"uid-{name}", "namespace": "default", "creationTimestamp": "2026-11-21T08:00:00Z"}
    return manifest | {"status": {"phase": phase}}


ITEMS = [node(), pod("a", "0,1,2,3", neuron=4, nodeName="trn1-a"), pod("b", neuron=16, phase="Pending")]


def a_list(items: list[Any]) -> Object:
    """Return the list that `kubectl get` prints."""
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items}


def in_yaml(value: Any) -> str:
    """Return YAML as kubectl prints it, without aliases."""
    return yaml.safe_dump(json.loads(json.dumps(value)))


def written(folder: Path, *texts: str) -> list[str]:
    """Write files, and return their paths."""
    paths = [folder / f"dump-{number}" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return [str(path) for path in paths]


def free(capture: Capture, name: str = "trn1-a") -> int:
    """Return how many cores of a node are free."""
    row = capture.cluster.node(name)
    assert row is not None
    return row.neuron_usage.free.bit_count()


def without_kinds(items: list[Any]) -> list[Any]:
    """Return the items as the API server's own lists have them."""
    return [{key: value for key, value in item.items() if key not in ("kind", "apiVersion")} for item in items]


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param([json.dumps(a_list(ITEMS))], id="json in one line"),
        pytest.param([json.dumps(a_list(ITEMS), indent=4)], id="json as kubectl prints it"),
        pytest.param([in_yaml(a_list(ITEMS))], id="yaml"),
        pytest.param(["---\n".join(map(in_yaml, ITEMS))], id="yaml documents"),
        pytest.param([json.dumps(item) for item in ITEMS], id="one object a file"),
        pytest.param([json.dumps(a_list(ITEMS[1:])), in_yaml(ITEMS[0])], id="two files, the nodes last"),
        pytest.param([json.dumps(a_list(ITEMS)), json.dumps(a_list(ITEMS))], id="the same twice"),
        pytest.param(
            [
                json.dumps({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": without_kinds(ITEMS[:1])}),
                json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": without_kinds(ITEMS[1:])}),
            ],
            id="kubectl get --raw",
        ),
        pytest.param(
            [json.dumps(a_list([*ITEMS, {"kind": "Secret", "apiVersion": "v1", "data": 7}, {"kind": "Pod"}]))],
            id="other kinds, and a pod without anything",
        ),
    ],
)
def test_every_form(tmp_path: Path, texts: list[str]) -> None:
    """JSON, YAML, lists of any kind, single objects, several files."""
    capture = from_files(written(tmp_path, *texts))
    assert [pod.key for pod in capture.waiting] == ["default/b"]
    assert set(capture.pods) == {"default/a", "default/b"}
    assert free(capture) == 24
    assert capture.taken == max((tmp_path / f"dump-{number}").stat().st_mtime for number in range(len(texts)))


def test_a_pipe(tmp_path: Path) -> None:
    """`-` is standard input, and a file may be a pipe."""
    script = "from neuron_scheduler.capture.files import from_files; print(len(from_files(['-']).pods))"
    done = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps(a_list(ITEMS)), capture_output=True, text=True, check=True
    )
    assert done.stdout == "2\n"
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["/bin/sh", "-c", f"cat > {tmp_path}/pipe"], stdin=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        writer.stdin.write(json.dumps(a_list(ITEMS)))
        writer.stdin.close()
        assert len(from_files([str(tmp_path / "pipe")]).pods) == 2


def test_what_a_capture_knows_of_pods(tmp_path: Path) -> None:
    """Those that wait, oldest first and of every scheduler; ended ones; unreadable ones, whose devices are unknown."""
    late = pod("late", neuron=1, phase="Pending")
    late["metadata"]["creationTimestamp"] = "2026-11-22T08:00:00Z"
    leaving = pod("leaving", neuron=1, phase="Pending")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-22T08:00:00Z"
    odd = pod("odd", neuron=1, nodeName="trn1-a")
    odd["spec"]["containers"] = 7
    other = pod("other", neuron=1, phase="Pending", scheduler_name="another")
    ended = pod("ended", "4,5", neuron=2, nodeName="trn1-a", phase="Succeeded")
    capture = from_files(written(tmp_path, json.dumps(a_list([late, leaving, odd, other, ended, *ITEMS]))))
    assert [pod.name for pod in capture.waiting] == ["b", "other", "late"]
    assert set(capture.unreadable) == {"default/odd"}
    row = capture.cluster.node("trn1-a")
    assert row is not None
    assert row.neuron_usage.unknown_holders == 1
    assert any("1 Pod cannot be read; what they use of their nodes counts as unknown" in n for n in capture.notes)
    assert set(capture.pods) >= {"default/late", "default/leaving"}
    assert "default/ended" not in capture.pods


@pytest.mark.parametrize(
    ("version", "spec", "named"),
    [
        ("scheduling.x-k8s.io/v1alpha1", {"minMember": 3}, {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}),
        (
            "scheduling.k8s.io/v1alpha3",
            {"schedulingPolicy": {"gang": {"minCount": 3}}},
            {"schedulingGroup": {"podGroupName": "g"}},
        ),
    ],
)
def test_a_pod_group(tmp_path: Path, version: str, spec: Any, named: dict[str, Any]) -> None:
    """Its count is that of the group. Nobody has to have one, unless a pod names it."""
    metadata = {"name": "g", "namespace": "default", "uid": "uid-g"}
    pod_group = {"apiVersion": version, "kind": "PodGroup", "metadata": metadata, "spec": spec}
    member = pod("member", neuron=16, phase="Pending", **named)
    capture = from_files(written(tmp_path, json.dumps(a_list([node(), member, pod_group]))))
    (waiting,) = capture.waiting
    assert waiting.group is not None
    assert capture.cluster.groups.group(waiting.group.key).least == 3
    assert not [note for note in capture.notes if "podgroups" in note]
    notes = from_files(written(tmp_path, json.dumps(a_list([node(), member])))).notes
    assert [note for note in notes if f"kubectl get podgroups.{version.partition('/')[0]} -A" in note]


def test_pods_without_uids_of_their_own(tmp_path: Path) -> None:
    """A file that was written by hand: no pod takes the place of another, so nothing looks free that is held."""
    pods = [pod(name, ids, neuron=2, nodeName="trn1-a") for name, ids in (("a", "0,1"), ("b", "2,3"), ("c", "4,5"))]
    for item, uid in zip(pods, ("", "same", "same"), strict=True):
        item["metadata"]["uid"] = uid
    nameless = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"nodeName": "trn1-a", "containers": 1}}
    homeless = pod("homeless", "6,7", neuron=2, nodeName="trn1-a")
    del homeless["metadata"]["namespace"]
    capture = from_files(written(tmp_path, json.dumps(a_list([node(), *pods, nameless, dict(nameless), homeless]))))
    assert free(capture) == 32 - 12
    row = capture.cluster.node("trn1-a")
    assert row is not None
    assert row.neuron_usage.unknown_holders == 3


def test_what_the_files_lack_is_noted(tmp_path: Path) -> None:
    """Each kind that the scheduler watches and that is not there."""
    (note,) = from_files(written(tmp_path, json.dumps(a_list(ITEMS)))).notes
    assert note.startswith("the files have no poddisruptionbudgets, namespaces, services, ")
    notes = from_files(written(tmp_path, json.dumps(a_list(ITEMS[:1])))).notes
    assert "the files have no pods, so every device looks free" in notes
    assert len(files.COMMAND.split()[2].split(",")) == 2 + note.count(",")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        (json.dumps(a_list(ITEMS))[:-700], "is cut off"),
        ('{"kind": "List", "items": 7}', "is no object and no list of objects"),
        ('{"kind": "List"}', "has no object that the scheduler reads"),
        ("NAME   READY\ntrn1-a True\n", "is neither JSON nor YAML|no list"),
        ("a: &x [*x]\n", "the alias in line 1 stands for nothing before it"),
        ("[" * 100_000, "more than 200 levels"),
        ("a: !!python/object:os.system x", "the tag tag:yaml.org,2002:python"),
        ("? [a]\n: b", "found unhashable key"),
        ("a: !!int x", "the type of its tag|invalid literal"),
        ("- [}", "no YAML in line 1"),
        ("\0", "is neither JSON nor YAML"),
        ('{"items":' + "[" * 100_000, "is cut off"),
        (json.dumps(a_list(ITEMS[1:])), "there is no node in it"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    """The file is named, and what to do."""
    with pytest.raises(ConfigurationError, match=says) as error:
        from_files(written(tmp_path, text))
    assert "dump-0" in str(error.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    """Neither a missing file nor a folder."""
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        from_files([str(tmp_path / "none")])
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        from_files([str(tmp_path)])


def test_one_object_that_is_nested_too_deep(tmp_path: Path) -> None:
    """It is malformed; the others are read."""
    deep = json.dumps(pod("deep", neuron=1, nodeName="trn1-a"))
    deep = deep.replace('"metadata":', '"metadata": {"x":' + "[" * 5000 + "]" * 5000 + '}, "metadata":', 1)
    text = json.dumps(a_list([*ITEMS, "deep"])).replace('"deep"', deep)
    capture = from_files(written(tmp_path, text))
    assert {"default/a", "default/b"} <= set(capture.pods)


@pytest.mark.parametrize("seed", range(examples(30)))
def test_hostile_objects(tmp_path: Path, seed: int) -> None:
    """Any value in any place: the cluster is read, or there is one sentence."""
    dice = Random(seed)
    items: list[Any] = [json.loads(json.dumps(item)) for item in ITEMS for _ in range(3)]
    for item in items[1:]:
        for _ in range(dice.randint(1, 3)):
            spoil(dice, item)
    try:
        capture = from_files(written(tmp_path, json.dumps(a_list(items))))
    except ConfigurationError:
        return
    assert capture.cluster.node("trn1-a") is not None


JUNK: tuple[Any, ...] = (
    None, 7, -1, 1 << 70, 1.5, "", "x", "\x1b[2J", "9" * 400, [], {}, [None], {"a": None}, True, "\ud800",
)  # fmt: skip


def spoil(dice: Random, item: Any) -> None:
    """Replace a random value in an object by another one."""
    while True:
        keys = list(item) if isinstance(item, dict) else list(range(len(item)))
        if not keys:
            return
        key = dice.choice(keys)
        if isinstance(item[key], dict | list) and dice.random() < 0.8:
            item = item[key]
            continue
        item[key] = dice.choice(JUNK)
        return


def test_a_limit_of_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML is slow, so it has a limit of its own."""
    monkeypatch.setattr(documents, "MOST_YAML", 3)
    with pytest.raises(ConfigurationError, match="write it with `-o json`"):
        list(documents.objects("f", b"a: b"))

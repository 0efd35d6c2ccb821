"""The commands that tell AWS's extension which devices our pods hold: complete, careful, and safe to paste."""

import shlex
from typing import Any

import pytest

from neuron_scheduler import cli
from neuron_scheduler.commands import usage_maps
from neuron_scheduler.telemetry.errors import ApiError
from tests.control_plane.objects import node_manifest, pod_manifest
from tests.control_plane.server import free_port
from tests.support.scripted_server import Answer, listing, refuse, scripted

Object = dict[str, Any]


def node(name: str, instance_type: str = "inf2.24xlarge", maps: dict[str, str] | None = None, **fields: Any) -> Object:
    """Return a node as the API server lists it."""
    manifest = node_manifest(name, instance_type, **fields)
    manifest["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "7", "annotations": maps or {}}
    return manifest


def bound(name: str, on: str, ids: str = "", *, status: Object | None = None, **request: Any) -> Object:
    """Return a pod on a node, with ids in AWS's annotation."""
    manifest = pod_manifest(name, annotations={"AWS_NEURON_IDS": ids} if ids else {}, nodeName=on, **request)
    manifest["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "5", "creationTimestamp": "2026-11-21T08:00:00Z"}
    for container in manifest["spec"]["containers"]:
        container["resources"]["requests"] = container["resources"]["limits"]  # as the API server defaults them
    return manifest | {"status": status or {"phase": "Running"}}


async def printed(*script: Answer) -> list[str]:
    """Return the output for a server that answers so."""
    async with scripted(*script) as (server, _):
        return await usage_maps.lines("", server.url)


def maps_of(line: str) -> dict[str, str]:
    """Return the annotations that a command writes."""
    words = shlex.split(line)
    assert words[:3] == ["kubectl", "annotate", "node"]
    assert words[4] == "--overwrite"
    return dict(word.split("=") for word in words[5:] if "=" in word)


def csv(text: str) -> str:
    """Return `true` for each x and `false` for each dot, with commas."""
    return ",".join("true" if character == "x" else "false" for character in text)


def maps(devices: str, cores: str) -> dict[str, str]:
    return {"NEURON_DEV_USAGE_MAP": csv(devices), "NEURON_CORE_USAGE_MAP": csv(cores)}


async def test_every_node_whose_maps_differ_has_a_command() -> None:
    """Pods of any scheduler count until they have ended, also terminating ones; right maps are left alone."""
    nodes = [
        node("busy"),
        node("stale", maps=maps("x.....", "xx..........")),
        node("right", maps=maps("xx....", "xxxx........")),
        node("cpu", "m5.large"),
    ]
    leaving = bound("leaving", "busy", "3", neuron=1)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-22T08:00:00Z"
    pods = [
        bound("pair", "busy", "0,1", neuron=2, scheduler_name="another"),
        bound("core", "busy", "9", neuroncore=1),
        leaving,
        bound("ended", "stale", "0", neuron=1, status={"phase": "Succeeded"}),
        bound("known", "right", "0,1", neuron=2),
        pod_manifest("pending", neuron=2) | {"status": {}},
    ]
    summary, *commands = await printed(listing(*nodes), listing(*pods))
    assert summary == "# 3 nodes with Neuron; the usage maps of 2 differ from what their pods hold"
    assert [shlex.split(line)[3] for line in commands] == ["busy", "stale"]
    assert maps_of(commands[0]) == maps("xx.xx.", "xxxx..xx.x..")
    assert maps_of(commands[1]) == maps("......", "............")


@pytest.mark.parametrize("ids", ["", "0,1,2", "0,9", "nd0"])
async def test_with_unknown_ids_all_is_written_as_used(ids: str) -> None:
    """The comment says which pod that is, and why."""
    _, comment, command = await printed(listing(node("a")), listing(bound("theirs", "a", ids, neuron=2)))
    assert comment.startswith("# node a: all is written as used, because the ids of pod default/theirs are unknown (")
    assert maps_of(command) == maps("xxxxxx", "x" * 12)


async def test_a_whole_machine_needs_no_ids() -> None:
    """A pod that asks for all devices has all of them."""
    _, command = await printed(listing(node("a")), listing(bound("whole", "a", neuron=6)))
    assert maps_of(command) == maps("xxxxxx", "x" * 12)


async def test_objects_that_cannot_be_read_are_named() -> None:
    """An unreadable pod may hold all of its node, an unreadable node has no command; a comment is one line."""
    pod = bound("p\nrm", "a", "0", neuron=1)
    pod["spec"]["containers"] = "none"
    broken = node("b")
    broken["status"]["capacity"] = 7
    summary, *rest = await printed(listing(node("a"), broken), listing(pod))
    assert summary == "# 1 nodes with Neuron; the usage maps of 1 differ from what their pods hold"
    assert [line.startswith("#") for line in rest] == [True, True, True, False]
    assert "Node b cannot be read" in rest[0]
    assert "Pod default/p\\nrm cannot be read" in rest[1]
    assert maps_of(rest[3]) == maps("xxxxxx", "x" * 12)


async def test_a_map_for_a_unit_that_is_not_served_is_removed() -> None:
    """How cores belong to devices is unknown there, so the extension should not read anything about cores."""
    odd = node("odd", maps=maps("......", "............"), neuroncore=13)
    _, command = await printed(listing(odd), listing(bound("p", "odd", "2", neuron=1)))
    assert maps_of(command) == {"NEURON_DEV_USAGE_MAP": csv("..x...")}
    assert command.endswith(" NEURON_CORE_USAGE_MAP-")


async def test_a_name_is_one_word_for_the_shell() -> None:
    """Whatever a server says, a line is one command about one node."""
    _, command = await printed(listing(node("a;reboot")), listing(bound("p", "a;reboot", "0", neuron=1)))
    assert shlex.split(command)[3] == "a;reboot"
    assert "'a;reboot'" in command


async def test_a_missing_right_is_an_error() -> None:
    """No command is printed if only a part of the cluster could be read."""
    with pytest.raises(ApiError, match="pods is forbidden"):
        await printed(listing(node("a")), refuse(403, "Forbidden", "pods is forbidden"))


def test_without_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 1, and nothing is on standard output, which may be a shell's input."""
    assert cli.main(["usage-maps", f"--master=http://127.0.0.1:{free_port()}"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("neuron-scheduler: the cluster cannot be read: ")


def test_without_a_usable_kubeconfig(capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake in the command line is exit code 2, as for `run`."""
    assert cli.main(["usage-maps", "--kubeconfig=/does/not/exist"]) == 2
    assert "/does/not/exist" in capsys.readouterr().err

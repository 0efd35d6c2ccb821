"""The patch types, case by case, without a server."""

from typing import Any

import pytest

from neuron_scheduler.sandbox.apiserver import patch
from neuron_scheduler.sandbox.apiserver.status import StatusError

CONTAINERS: list[dict[str, Any]] = [
    {"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]},
    {"name": "b", "image": "1"},
]


MERGES: dict[str, Any] = {
        "null removes": ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        "objects merge": ({"a": {"x": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}),
        "lists are replaced": ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        "a value becomes an object": ({"a": 1}, {"a": {"x": 1}}, {"a": {"x": 1}}),
    }  # fmt: skip


@pytest.mark.parametrize("sentence", MERGES)
def test_merge(sentence: str) -> None:
    """RFC 7386."""
    target, change, want = MERGES[sentence]
    assert patch.merge(target, change) == want


STRATEGIC_MERGES: dict[str, Any] = {
        "containers merge by name": (
            {"containers": CONTAINERS},
            {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "b", "image": "2"}]},
            {"containers": [CONTAINERS[0], {"name": "b", "image": "2"}]},
        ),
        "a nested list merges as well": (
            {"containers": CONTAINERS[:1]},
            {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]},
            {"containers": [CONTAINERS[0] | {"env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}]},
        ),
        "an item is deleted by directive": (
            {"containers": CONTAINERS},
            {"containers": [{"$patch": "delete", "name": "a"}]},
            {"containers": [CONTAINERS[1]]},
        ),
        "a list is replaced by directive": (
            {"containers": CONTAINERS},
            {"containers": [{"$patch": "replace"}, {"name": "c"}]},
            {"containers": [{"name": "c"}]},
        ),
        "an object is replaced by directive": ({"a": {"x": 1}}, {"a": {"$patch": "replace", "y": 2}}, {"a": {"y": 2}}),
        "an object is deleted by directive": ({"a": {"x": 1}}, {"a": {"$patch": "delete"}}, {}),
        "tolerations are atomic": ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]},
                                   {"tolerations": [{"key": "b"}]}),
        "finalizers are united": ({"finalizers": ["a"]}, {"finalizers": ["b"]}, {"finalizers": ["a", "b"]}),
        "finalizers are removed by directive": (
            {"finalizers": ["a", "b"]},
            {"$deleteFromPrimitiveList/finalizers": ["a"]},
            {"finalizers": ["b"]},
        ),
        "keys are retained by directive": (
            {"s": {"x": 1, "y": 2}}, {"s": {"$retainKeys": ["y", "z"], "z": 3}}, {"s": {"y": 2, "z": 3}}
        ),
    }  # fmt: skip


@pytest.mark.parametrize("sentence", STRATEGIC_MERGES)
def test_strategic_merge(sentence: str) -> None:
    """Lists of named items merge by name."""
    target, change, want = STRATEGIC_MERGES[sentence]
    assert patch.strategic_merge(target, change) == want


JSON_PATCHES: dict[str, Any] = {
        "add to an object": ([{"op": "add", "path": "/b", "value": 2}], {"a": [1, 2], "b": 2}),
        "insert into a list": ([{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2]}),
        "append to a list": ([{"op": "add", "path": "/a/-", "value": 9}], {"a": [1, 2, 9]}),
        "replace in a list": ([{"op": "replace", "path": "/a/0", "value": 9}], {"a": [9, 2]}),
        "remove": ([{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        "copy": ([{"op": "copy", "from": "/a/0", "path": "/b"}], {"a": [1, 2], "b": 1}),
        "move": ([{"op": "move", "from": "/a", "path": "/b~1c"}], {"b/c": [1, 2]}),
        "replace all": ([{"op": "replace", "path": "", "value": {"c": 1}}], {"c": 1}),
    }  # fmt: skip


@pytest.mark.parametrize("sentence", JSON_PATCHES)
def test_json_patch(sentence: str) -> None:
    """RFC 6902."""
    operations, want = JSON_PATCHES[sentence]
    assert patch.json_patch({"a": [1, 2]}, operations) == want


REFUSED_PATCHES: dict[str, Any] = {
        "no list": ({}, 400),
        "an unknown operation": ([{"op": "turn", "path": "/a"}], 422),
        "a path to nowhere": ([{"op": "replace", "path": "/x/y", "value": 1}], 422),
        "an index beyond the end": ([{"op": "remove", "path": "/a/7"}], 422),
        "a failed test": ([{"op": "test", "path": "/a/0", "value": 7}], 422),
        "no pointer": ([{"op": "remove", "path": "a"}], 422),
    }  # fmt: skip


@pytest.mark.parametrize("sentence", REFUSED_PATCHES)
def test_json_patch_refuses(sentence: str) -> None:
    """An operation that does not apply changes nothing."""
    operations, code = REFUSED_PATCHES[sentence]
    with pytest.raises(StatusError) as refusal:
        patch.json_patch({"a": [1, 2]}, operations)
    assert refusal.value.code == code


def test_a_list_item_without_its_key_is_refused() -> None:
    """400, with upstream's text."""
    with pytest.raises(StatusError, match="does not contain declared merge key: name"):
        patch.strategic_merge({}, {"containers": [{"image": "1"}]})

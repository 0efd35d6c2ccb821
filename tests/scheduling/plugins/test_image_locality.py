"""ImageLocality: among equals, the node that has the images."""

from collections.abc import Mapping
from typing import Any

import pytest

from neuron_scheduler.model.node import Image
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, schedule

MB = 1 << 20


def image(name: str, size: int) -> Image:
    return Image((f"{name}@sha256:0", f"{name}:1"), size * MB)


WEB, SMALL, HUGE = image("web", 600), image("small", 22), image("huge", 15_000)

CASES: dict[str, tuple[Mapping[str, tuple[Image, ...]], Mapping[str, Any], str]] = {
    "no node has it: the oldest": ({}, {"images": ("web:1",)}, "a"),
    "the one that has it": ({"c": (WEB,)}, {"images": ("web:1",)}, "c"),
    "found by digest too": ({"c": (WEB,)}, {"images": ("web@sha256:0",)}, "c"),
    "all have it": (dict.fromkeys("abcd", (WEB,)), {"images": ("web:1",)}, "a"),
    "the larger of two": (
        {"b": (image("web", 5_000),), "c": (image("db", 9_000),)},
        {"images": ("web:1", "db:1")},
        "c",
    ),
    "shares an eighth: the oldest": (
        {"b": (image("web", 600),), "c": (image("db", 601),)},
        {"images": ("web:1", "db:1")},
        "a",
    ),
    "too small to matter": ({"c": (SMALL,)}, {"images": ("small:1",)}, "a"),
    "an image volume counts": ({"c": (HUGE,)}, {"images": ("web:1",), "volume_images": ("huge:1",)}, "c"),
    "an image volume widens the range, so these two share an eighth": (
        {"b": (image("web", 1200),), "c": (image("model", 1600),)},
        {"images": ("web:1",), "volume_images": ("model:1",)},
        "b",
    ),
    "the same name in two sizes": (
        {"b": (image("web", 700),), "c": (image("web", 1900),)},
        {"images": ("web:1",)},
        "c",
    ),
    "a pod without containers, which there is none": ({"c": (WEB,)}, {}, "a"),
}


@pytest.mark.parametrize("sentence", CASES)
def test_which_node(sentence: str) -> None:
    """Four nodes that are alike but for their images; an image counts by size and share of nodes, in eighths."""
    images, asked, want = CASES[sentence]
    nodes = [node(name, created=i, images=images.get(name, ())) for i, name in enumerate("abcd")]
    assert schedule(cluster_of(nodes), pod(**asked)) == (want, ())

"""A new release shows its work: whatever changed of what we stand in for has been looked at."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.control_plane.binaries import RELEASE, kubernetes_version, releases
from tests.upstream import compare, facts
from tests.upstream.sources import sources

ROOT = Path(__file__).parents[2]
PAIRS = list(pairwise(releases()))
NOT_OURS = {
    "node(s) had taints that the pod didn't tolerate": "a constant that kube-scheduler does not use",
    "node(s) had unknown conditions": "for a node that is gone from kube-scheduler's cache",
    "node(s) didn't match scheduler-enforced node affinity": "for `addedAffinity`, which is not supported",
}
"""Reasons of kube-scheduler that we do not give, and when it would."""


@pytest.mark.parametrize(("older", "newer"), PAIRS)
def test_every_difference_has_a_sentence(older: str, newer: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m tests.upstream.compare` of two pinned releases that follow each other exits with 0."""
    assert compare.main([older, newer]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(("older", "newer"), PAIRS)
def test_every_sentence_is_about_a_difference(older: str, newer: str) -> None:
    """`looked_at.toml` has no item that did not change."""
    names = {difference.name for difference in compare.differences(facts.recorded(older), facts.recorded(newer))}
    assert compare.looked_at(older, newer).keys() == names


@pytest.mark.parametrize("release", releases())
def test_the_facts_are_of_the_pinned_patch(release: str) -> None:
    """Whoever moves a pin reads the facts again: `python -m tests.upstream.read RELEASE`."""
    assert facts.recorded_version(release) == kubernetes_version(release)


@pytest.mark.control_plane
def test_the_facts_are_what_the_sources_say() -> None:
    """The sources of the release that the tests run on say what has been kept."""
    assert facts.read(sources(RELEASE)) == facts.recorded(RELEASE)


def test_every_section_has_its_place_in_ours() -> None:
    """A difference names the file to look at."""
    places = compare.ours()
    assert places.keys() == facts.recorded(releases()[-1]).keys()
    assert [place for place in places.values() if not (ROOT / place).exists()] == []


def test_the_reasons_of_the_newest_release_are_ours() -> None:
    """A reason for which kube-scheduler refuses a node is in the file that stands in for the plugin, to the letter."""
    missing = {}
    for section, items in facts.recorded(releases()[-1]).items():
        path = ROOT / compare.ours()[section]
        for text in (
            json.loads(item.removeprefix("message ")) for item in items if item.startswith('message "node(s)')
        ):
            if text not in NOT_OURS and text not in path.read_text():
                missing[text] = str(path)
    assert missing == {}

"""Semantic versions are read and ordered as `blang/semver` does it."""

import itertools

import pytest

from neuron_scheduler.model.version import Version

# semver.org, section 11, with numbers that are compared as text by mistake.
ASCENDING = (
    "0.0.0",
    "1.0.0-0",
    "1.0.0-2",
    "1.0.0-11",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "2.0.0-a",
    "18446744073709551615.0.0",
)
UNREADABLE = (
    "",
    "1",
    "1.2",
    "v1.2.3",
    "01.2.3",
    "1.2.3.4",
    "1.2.3-",
    "1.2.3-01",
    "1.2.3-a..b",
    "1.2.3+",
    "1.2.3+a_b",
    "1.2.-3",
    "-1.2.3",
    "1.2.3 ",
    "1.2.٣",
    "18446744073709551616.0.0",
    "1.0.0-18446744073709551616",
    "1.0.0-" + "1" * 5_000,
)


def test_order() -> None:
    """Each version precedes exactly those behind it."""
    versions = [version for version in map(Version.parse, ASCENDING) if version]
    assert len(versions) == len(ASCENDING)
    for (i, left), (j, right) in itertools.product(enumerate(versions), repeat=2):
        assert (left < right, left == right, left > right) == (i < j, i == j, i > j)


def test_the_build_does_not_count() -> None:
    """Versions that differ in their build only are equal, but the build is kept."""
    left, right = Version.parse("1.2.3+a.-1"), Version.parse("1.2.3")
    assert left
    assert left == right
    assert left.build == "a.-1"


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_is_no_version(text: str) -> None:
    """Only semantic versions in their one form are read."""
    assert Version.parse(text) is None


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("v1.2.3", "1.2.3"),
        ("1", "1.0.0"),
        ("v1.2", "1.2.0"),
        ("001.02.03-a+b", "1.2.3-a"),
        ("0.00.000", "0.0.0"),
        ("1.2-a", None),
        ("1.2+b", None),
        ("vv1.2.3", None),
        ("1.2.3.4", None),
    ],
)
def test_a_tolerant_reading(text: str, same: str | None) -> None:
    """A `v`, missing parts and leading zeros are tolerated."""
    assert Version.parse_tolerantly(text) == (Version.parse(same) if same else None)

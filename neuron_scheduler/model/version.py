"""
Semantic versions, as drivers publish them of their devices.

Upstream: `github.com/blang/semver/v4`, and `normalizeAndParse` of `k8s.io/apiserver/pkg/cel/library`.
"""

import re
from typing import Final, Self

import attrs

Identifier = tuple[int, int, str]
"""A part of a prerelease: (0, number, "") or (1, 0, text), so that tuples compare as semver says."""

RELEASE: Final[tuple[Identifier, ...]] = ((2, 0, ""),)
"""What a version without a prerelease has in its place: it follows all of its prereleases."""

_NUMBER = "0|[1-9][0-9]{0,19}"
_IDENTIFIER = rf"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
_LARGEST = (1 << 64) - 1


@attrs.frozen(order=True)
class Version:
    """
    A semantic version. Versions that differ in their build only are equal.

    Attributes:
        build: what follows `+`; empty if nothing does.
    """

    major: int
    minor: int
    patch: int
    prerelease: tuple[Identifier, ...] = RELEASE
    build: str = attrs.field(default="", eq=False)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the version, or None if the text is none."""
        parts = _VERSION.fullmatch(text)
        if parts is None:
            return None
        major, minor, patch = (int(number) for number in parts.groups()[:3])
        prerelease = tuple(map(_identifier, parts[4].split("."))) if parts[4] else RELEASE
        if max(major, minor, patch, *(number for _, number, _ in prerelease)) > _LARGEST:
            return None
        return cls(major, minor, patch, prerelease, parts[5] or "")

    @classmethod
    def parse_tolerantly(cls, text: str) -> Self | None:
        """Return the version, also of `v1.2` and `01.02.03`; None if the text is none."""
        parts = text.removeprefix("v").split(".", 2)
        if len(parts) < 3 and re.search("[+-]", parts[-1]):
            return None
        return cls.parse(".".join([re.sub("^0+(?=[0-9])", "", part) for part in parts] + ["0"] * (3 - len(parts))))


def _identifier(text: str) -> Identifier:
    return (0, int(text), "") if text.isdigit() else (1, 0, text)

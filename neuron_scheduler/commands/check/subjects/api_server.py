"""The API server answers, and is of a supported version."""

import re
from collections.abc import Iterator
from typing import Final

from neuron_scheduler.commands.check.subjects.finding import Finding, note, ok, unknown, warning
from neuron_scheduler.commands.check.subjects.snapshot import Snapshot, Unread

OLDEST: Final = (1, 33)
NEWEST: Final = (1, 37)

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")
_SUPPORTED: Final = f"supported: {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    version = snapshot.version
    if isinstance(version, Unread):
        yield unknown("version-unknown", "Its version is", f"{version} ({_SUPPORTED})")
        return
    found = _VERSION.match(version)
    if found is None:
        yield note("version-unknown", f"It calls its version {version!r}, which is none of Kubernetes ({_SUPPORTED})")
        return
    number = (int(found[1]), int(found[2]))
    if number < OLDEST:
        yield warning(
            "version-too-old",
            f"Kubernetes {version} is too old ({_SUPPORTED})",
            advice="Upgrade the control plane first; nothing has been tested with this version",
        )
    elif number > NEWEST:
        yield warning(
            "version-too-new",
            f"Kubernetes {version} is newer than this program knows ({_SUPPORTED})",
            advice="Look for a newer version of neuron-scheduler",
        )
    else:
        yield ok("version", f"Kubernetes {version} ({_SUPPORTED})")

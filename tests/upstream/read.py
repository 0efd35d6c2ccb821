"""Read the facts of pinned releases from their sources and keep them: `python -m tests.upstream.read 1.38`."""

import argparse
import sys

from tests.control_plane.binaries import releases
from tests.upstream import facts
from tests.upstream.sources import sources


def main() -> int:
    """Write `facts/RELEASE.json` for each of the releases."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream.read", description=__doc__)
    parser.add_argument("releases", nargs="+", choices=releases(), metavar="RELEASE", help="a pinned one, such as 1.38")
    for release in parser.parse_args().releases:
        found = sources(release)
        facts.record(facts.read(found), release, found.version)
        sys.stdout.write(f"tests/upstream/facts/{release}.json: Kubernetes {found.version}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

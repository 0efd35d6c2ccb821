"""A build that fails or hangs ends with its last lines and a reason."""

import os
import sys
from pathlib import Path

import pytest

from tests.control_plane import build


def run(code: str) -> None:
    """Run a line of Python as a build is run."""
    build.run_in_view([sys.executable, "-c", code], Path.cwd(), os.environ, "building")


def test_a_build_that_fails_has_its_last_lines() -> None:
    """What the compiler said is in the error."""
    with pytest.raises(build.BuildError, match=r"(?s)undefined: x.*exited with 3"):
        run("import sys; print('undefined: x', file=sys.stderr); sys.exit(3)")

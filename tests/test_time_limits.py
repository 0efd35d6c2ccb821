"""A machine that stalls fails no test: what must happen is waited for with `PATIENCE`, not with a limit of seconds."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.patience import PATIENCE

TESTS: Final = Path(__file__).parent


def short_limits(source: str) -> Iterator[int]:
    """Yield the lines with a `fail_after` of seconds, or `within` some; 0 is allowed, as nothing is waited for then."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="fail_after") | ast.Name(id="fail_after"),
                args=[ast.Constant(value=int() | float() as seconds)],
            ) if 0 < seconds < PATIENCE:
                yield node.lineno
            case ast.keyword(arg="within", value=ast.Constant(value=int() | float() as seconds)) if (
                0 < seconds < PATIENCE
            ):
                yield node.lineno


def test_no_test_has_a_short_limit() -> None:
    """Where time has to pass in a test, its clock is set, or a scope is cancelled when that is due."""
    files = [path for path in TESTS.rglob("*.py") if path != Path(__file__)]
    found = [f"{path.relative_to(TESTS)}:{line}" for path in files for line in short_limits(path.read_text())]
    assert found == []

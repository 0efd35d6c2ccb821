"""Annotation keys are written down once."""

import ast
from pathlib import Path

from neuron_scheduler.model import annotations

PACKAGE = Path(annotations.__file__).parents[1]
KEYS = {value for name, value in vars(annotations).items() if name.isupper() and isinstance(value, str)}


def test_no_other_module_spells_a_key() -> None:
    """Only the sandbox does, outside of the package: it is a witness of its own."""
    assert [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != Path(annotations.__file__)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in KEYS
    ] == []

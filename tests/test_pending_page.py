"""docs/pending.md has every message that a waiting pod can get."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from neuron_scheduler.neuron.topology import INVALID_TOGETHER
from neuron_scheduler.scheduling.cycle.schedule_pod import ALIAS_HINT, NO_NODES_AVAILABLE
from neuron_scheduler.scheduling.plugins import dynamic_resources, volume_zone
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.preemption import comparison, search

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "neuron_scheduler"
PAGE: Final = (ROOT / "docs/pending.md").read_text()
JUDGES: Final = ("scheduling/plugins", "scheduling/cycle", "scheduling/preemption", "neuron", "kube/objects")
"""The folders whose modules word a refusal."""
WORDS: Final = re.compile(r"node\(s\)|^Too many|^Insufficient |not found$|non-existent|this scheduler|CSI driver|^PVC ")


def texts(tree: ast.Module) -> Iterator[str]:
    """Yield the strings of a module without its docstrings; of an f-string and of a format the fixed parts."""
    docstrings = {
        id(body[0].value)
        for node in ast.walk(tree)
        if (body := getattr(node, "body", None)) and isinstance(body, list) and isinstance(body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from re.split(r"\{\w+\}", node.value)


MESSAGES: Final = sorted(
    {
        text.strip()
        for folder in JUDGES
        for path in (PACKAGE / folder).glob("*.py")
        for text in texts(ast.parse(path.read_text()))
        if WORDS.search(text)
    }
)
SUMMED_UP: Final = (Cause.CAPACITY, Cause.FRAGMENTATION, Cause.INVALID_COUNT, Cause.NOMINATED)
"""The causes with which the last sentence of a message may begin."""
OTHERS: Final = (
    *(ALIAS_HINT, NO_NODES_AVAILABLE, dynamic_resources.REASON, volume_zone.NO_NAMES, volume_zone.NO_VOLUME),
    *(comparison.NO_VICTIMS, comparison.NOT_HELPFUL, search.NEVER, search.WAITING),
    *(f"{cause.capitalize().replace('_', ' ')}:" for cause in SUMMED_UP),
    INVALID_TOGETHER.partition("}")[2].strip(),
)


@pytest.mark.parametrize("message", [*MESSAGES, *OTHERS])
def test_a_message_is_explained(message: str) -> None:
    """Its fixed words are in the first column of a table."""
    firsts = [line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| `")]
    assert any(message.strip(' "`;,') in first for first in firsts)


def test_the_search_finds_messages() -> None:
    """A search that finds too little would hide a message that is missing."""
    assert {"node(s) were unschedulable", "Too many pods"} <= {*MESSAGES}
    assert len(MESSAGES) > 30

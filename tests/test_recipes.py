"""A reader follows a recipe of the package's README in a copy of the project: the files that it names are enough."""

import re
import subprocess
import sys
from pathlib import Path

from tests.mutants.mutant import copy_with
from tests.support.kustomize import ROOT

JUDGES = ("tests/neuron/test_catalog.py", "tests/test_page_tables.py")
"""What could notice another instance type."""
EDITS = {
    "neuron_scheduler/neuron/catalog.py": (
        '        InstanceType("inf2.xlarge",',
        '        InstanceType("trn9.48xlarge", 16, (2,), Shape.TORUS, "a test"),\n',
    ),
    "docs/sizing.md": ("| `inf2.48xlarge` |", "| `trn9.48xlarge` | 16 | 1, 4, 8, 16 | 2 | 1, 2, 8, 16, 32 |\n"),
}


def recipe(name: str) -> str:
    text = (ROOT / "neuron_scheduler" / "README.md").read_text()
    return text.partition(f"**{name}**")[2].partition("\n\n")[0]


def judged(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *JUDGES]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_another_instance_type() -> None:
    """With all files of the recipe the tests pass, with the first one alone they do not."""
    needed = recipe("An instance type").partition("The sandbox")[0]
    assert re.findall(r"`([\w/]+/\w+\.\w+)`", needed) == [file.removeprefix("neuron_scheduler/") for file in EDITS]
    with copy_with(None) as copy:
        outcomes = []
        for file, (line, added) in EDITS.items():
            text = (copy / file).read_text()
            assert line in text
            (copy / file).write_text(text.replace(line, added + line, 1))
            outcomes.append(judged(copy))
    assert "test_the_counts_are_those_of_the_catalog" in outcomes[0].stdout
    assert outcomes[1].returncode == 0, outcomes[1].stdout

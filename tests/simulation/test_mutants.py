"""Each mutant still changes the package, and the simulation notices it."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import neuron_scheduler.telemetry.errors  # noqa: F401 - for the test of a module that is imported already
from tests.simulation.hunt import SEEDS
from tests.simulation.jobs import Job
from tests.simulation.mutants.mutant import Edit, Mutant, RottenMutantError
from tests.simulation.mutants.registry import MUTANTS, caught
from tests.simulation.runner import ROOT, Runner
from tests.support.thoroughness import FAST

SOURCE = """\
def area(width, height):
    if width < 0:
        raise ValueError("a negative width")

    return width * height
"""
BLOCK = """
            if width < 0:
                raise ValueError("a negative width")

            return
            """


CAUGHT = caught()
CHECKED = [mutant.name for mutant in MUTANTS if mutant.name in CAUGHT][:: 8 if FAST else 1]
"""A process for each takes some seconds."""


def mutant(*edits: Edit) -> Mutant:
    """Return a mutant with some edits."""
    return Mutant(name="no-check", away="the check", danger="there is a negative area", edits=edits)


@pytest.mark.parametrize("each", MUTANTS, ids=lambda each: each.name)
def test_each_mutant_changes_the_package(each: Mutant) -> None:
    """Its texts are in the source once, and what comes out can be compiled."""
    sources: dict[Path, str] = {}
    for edit in each.edits:
        before = sources.setdefault(edit.path, edit.path.read_text())
        sources[edit.path] = each.changed(before, [edit])
        assert sources[edit.path] != before
    for path, source in sources.items():
        compile(source, str(path), "exec")


def test_enough_mutants_are_caught() -> None:
    """Each is caught within 500 seeds, or says what hides it; names that are not in the table any more are not kept."""
    assert {mutant.name for mutant in MUTANTS if not mutant.masked} == CAUGHT.keys()
    assert all(catch.seed < SEEDS for catch in CAUGHT.values())


@pytest.mark.parametrize("name", CHECKED)
def test_the_simulation_notices_each_mutant(name: str) -> None:
    """On its recorded seed the same oracle fails; `--find-mutants` finds another seed when scenarios have changed."""
    with Runner(1, name) as runner:
        (result,) = runner.all([Job(seed=CAUGHT[name].seed)])
    assert result.oracles & set(CAUGHT[name].oracles), result


def test_names_are_unique() -> None:
    """A name stands for one mutant."""
    assert [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1] == []


def test_a_block_is_found_whatever_its_indentation() -> None:
    """The last line of a block shows how far it is indented in the mutant."""
    before = """
        if width < 0:
            raise ValueError("a negative width")

        """
    assert Edit("area", before, "").made_in(SOURCE) == ["def area(width, height):\n    return width * height\n"]
    after = """
        pass
        """
    assert Edit("area", before, after).made_in(SOURCE) == [
        "def area(width, height):\n    pass\n    return width * height\n"
    ]


def test_a_part_of_a_line_is_found() -> None:
    """A text without a line break is replaced where it stands."""
    assert Edit("area", "width * height", "0").made_in(SOURCE) == [SOURCE.replace("width * height", "0")]


@pytest.mark.parametrize(("before", "times"), [("depth", 0), ("width", 4), (BLOCK, 0)])
def test_a_mutant_that_does_not_fit_any_more_is_an_error(before: str, times: int) -> None:
    """It names the text, and how often it was found."""
    edit = Edit("kube", before, "")
    with pytest.raises(RottenMutantError, match=f"no-check: this text is {times} times in kube.py, not once"):
        mutant(edit).changed(SOURCE, [edit])


def test_a_module_that_is_imported_already_is_an_error() -> None:
    """Nothing would be changed."""
    edit = Edit("telemetry.errors", "", "")
    with pytest.raises(RottenMutantError, match=r"neuron_scheduler.telemetry.errors is imported before"):
        mutant(edit).install()


def test_a_mutant_changes_what_is_imported_after_it() -> None:
    """The module has the change, its compiled file does not, and a module that nothing imports is an error."""
    code = """
import neuron_scheduler.telemetry.errors  # noqa: F401 - for the test of a module that is imported already
from tests.simulation.mutants.mutant import Edit, Mutant, RottenMutantError
edits = (Edit("kube.http.status", "LONGEST_PAUSE: Final = 15.0", "LONGEST_PAUSE: Final = 16.0"),)
mutant = Mutant(name="a", away="b", danger="c", edits=edits)
mutant.install()
try:
    mutant.require_applied()
except RottenMutantError as error:
    print(error)
from neuron_scheduler.kube.http import status
mutant.require_applied()
print(status.LONGEST_PAUSE)
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout == "a changes neuron_scheduler.kube.http.status, which nothing imports\n16.0\n"
    again = "from neuron_scheduler.kube.http import status; print(status.LONGEST_PAUSE)"
    ran = subprocess.run([sys.executable, "-c", again], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout == "15.0\n"

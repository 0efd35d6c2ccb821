"""The list of breaks fits the code and the tests; `python -m tests.breaks --all` shows that each is caught."""

from collections import Counter

from tests.breaks.broken import ROOT, Share
from tests.breaks.every import BREAKS


def test_each_break_can_be_made() -> None:
    """Its text is in the file exactly once, and what comes out is another file, which can be compiled."""
    for each in BREAKS:
        source = (ROOT / each.file).read_text()
        broken = each.broken(source)
        assert broken != source, each.name
        if each.file.endswith(".py"):
            compile(broken, each.file, "exec")


def test_the_named_tests_exist() -> None:
    """Each file is there, and has the function that is named."""
    for each in BREAKS:
        for test in each.tests:
            file, _, function = test.partition("::")
            text = (ROOT / file).read_text()
            assert f"def {function.partition('[')[0]}(" in text or not function, f"{each.name}: {test}"


def test_there_are_enough_for_all_rooms() -> None:
    """Each is named once, and most are caught without a control plane."""
    assert [name for name, count in Counter(each.name for each in BREAKS).items() if count > 1] == []
    assert len(BREAKS) >= 44
    assert sum(each.share is Share.FAST for each in BREAKS) >= 36

"""The history: a story that people can read, and a digest by which two runs are compared."""

from tests.simulation.history import History

UUIDS = (
    "6fa459ea-ee8a-3ca4-894e-db77e160355e",
    "6fa459ea-ff8a-3ca4-894e-db77e160355e",
    "16fd2706-8baf-433b-82eb-8c7fada847da",
)


def a_history(*texts: str) -> History:
    """Return a history with these lines, one each second."""
    history = History(clock=lambda: float(len(history.lines)))
    for text in texts:
        history.line("world", text)
    return history


def test_ids_are_short_and_differ() -> None:
    """An id is shortened to its first characters, and to more where another id begins alike."""
    printed = a_history(*UUIDS, UUIDS[0]).printed()
    assert [line.split()[-1] for line in printed.splitlines()] == ["6fa459ea-e", "6fa459ea-f", "16fd", "6fa459ea-e"]


def test_equal_histories_have_equal_digests() -> None:
    """The digest depends on each line, its time and its order."""
    assert a_history("a", "b").digest() == a_history("a", "b").digest()
    digests = {a_history(*texts).digest() for texts in (("a", "b"), ("b", "a"), ("a",), ("a", "b", "b"), ("ab",))}
    assert len(digests) == 5


def test_a_history_that_runs_away_is_bounded() -> None:
    """Lines beyond the limit are counted and in the digest, and take no memory."""
    short, other = (History(clock=float, most_lines=2) for _ in range(2))
    for text in ("a", "b", "c"):
        short.line("world", text)
    for text in ("a", "b", "d"):
        other.line("world", text)
    assert len(short.lines) == 2
    assert short.printed().endswith("... 1 more lines\n")
    assert short.digest() != other.digest()

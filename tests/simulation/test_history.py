"""The history: a story that people can read, and a digest by which two runs are compared."""

from tests.simulation.history import History
from tests.support.histories import Story, node, pod, with_status

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


def test_a_line_says_when_who_and_what() -> None:
    """Each line begins with the virtual time and its source."""
    history = a_history("a node is deleted")
    history.request("replica-0", "POST", "/api/v1/namespaces/default/pods/p/binding", "201")
    assert history.printed().splitlines() == [
        "   0.000000 world        a node is deleted",
        "   1.000000 replica-0    POST /api/v1/namespaces/default/pods/p/binding -> 201",
    ]


def test_ids_are_short_and_differ() -> None:
    """An id is shortened to its first characters, and to more where another id begins alike."""
    printed = a_history(*UUIDS, UUIDS[0]).printed()
    assert [line.split()[-1] for line in printed.splitlines()] == ["6fa459ea-e", "6fa459ea-f", "16fd", "6fa459ea-e"]


def test_equal_histories_have_equal_digests() -> None:
    """The digest depends on each line, its time and its order."""
    assert a_history("a", "b").digest() == a_history("a", "b").digest()
    digests = {a_history(*texts).digest() for texts in (("a", "b"), ("b", "a"), ("a",), ("a", "b", "b"), ("ab",))}
    assert len(digests) == 5


def test_addresses_and_control_characters_are_not_in_it() -> None:
    """An address of memory would differ from run to run, and an escape sequence would act on the reader's terminal."""
    printed = a_history("<object at 0x7f3a9c0012d0> \x1b[2J\n").printed()
    assert "0x7f3a" not in printed
    assert printed.count("\n") == 1
    assert "\\x1b[2J" in printed


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


def test_faults_changes_and_violations_are_counted() -> None:
    """What struck, what was committed and what is wrong can be asked for without reading the story."""
    history = a_history()
    history.struck("cut", "replica-0 -> api-0")
    history.struck("cut")
    history.violation("cores", "p and q both hold core 0")
    story = Story()
    story.put(node())
    history.committed(story.changes[0])
    assert history.faults == {"cut": 2}
    assert history.changes == {"Node": 1}
    assert [(v.oracle, v.text) for v in history.violations] == [("cores", "p and q both hold core 0")]
    assert "VIOLATION    cores: p and q" in history.printed()


def test_changes_are_told_in_plain_words() -> None:
    """A pod's life reads like a story: asked for, waits, bound with its ids, runs, is gone."""
    story, history = Story(), a_history()
    story.put(node())
    waiting = story.put(pod("p", 4))
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    waiting = story.put(with_status(waiting, conditions=[refused]))
    running = story.bind(waiting, "trn", 0, 1, 2, 3)
    running = story.put(with_status(running, phase="Running"))
    story.remove(running)
    story.lease("a_1")
    for change in story.changes:
        history.committed(change)
    told = [line.text.partition(" ")[2] for line in history.lines]
    assert told == [
        "Node trn (uid-trn) is new, is trn1.32xlarge, 16 devices",
        "Pod default/p (uid-p) is new for my-scheduler, asks for 4 devices, priority 0",
        "Pod default/p waits: Unschedulable: 0/1 nodes",
        "Pod default/p is bound to trn (ids 0,1,2,3, by replica-a_1)",
        "Pod default/p is Running",
        "Pod default/p is gone",
        "Lease kube-system/my-scheduler is held by a_1",
    ]

"""The table of waiting pods: aligned, one line a pod, safe for a terminal."""

from neuron_scheduler.commands.waiting_text import WaitingText
from neuron_scheduler.explain.answers.explanation import PodSummary
from neuron_scheduler.explain.answers.lists import Waiting, WaitingPod

WAITING = Waiting(
    (
        WaitingPod(
            PodSummary("ml", "train-0", "my-scheduler", created=1000.0, asks="8 Neuron devices"), "capacity", "0/5 ..."
        ),
        WaitingPod(PodSummary("default", "e\x1b[2Jvil\n" + "x" * 200), "", "Fits now, on a."),
    ),
    total=2,
)


def test_the_columns() -> None:
    """Like kubectl's, and wide ones with the message."""
    heading, first, second = WaitingText(now=1090.0, place="").lines(WAITING)
    assert heading.split() == ["NAMESPACE", "NAME", "ASKS", "FOR", "AGE", "CAUSE"]
    assert first.split() == ["ml", "train-0", "8", "Neuron", "devices", "90s", "capacity"]
    assert first.index("8 Neuron") == heading.index("ASKS FOR")
    assert second.endswith("<unknown>   fits")
    assert second.isprintable()
    assert len(second) < 200
    heading, first, _ = WaitingText(wide=True, now=1090.0).lines(WAITING)
    assert heading.endswith("MESSAGE")
    assert first.endswith("0/5 ...")


def test_nobody_waits() -> None:
    """A sentence in place of an empty table."""
    assert list(WaitingText(place="in namespace ml").lines(Waiting(()))) == [
        "No pod that asks for Neuron waits in namespace ml."
    ]

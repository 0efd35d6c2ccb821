"""Fleets and pods for the tests of the page."""

from neuron_scheduler.explain.answers import (
    ChangeKind,
    Explanation,
    Fleet,
    Holder,
    LeavingPod,
    MachinePicture,
    NodeGroup,
    PodSummary,
    RecentDecision,
    RecentDecisions,
    SuggestedChange,
    TypeSummary,
    Verdict,
    Waiting,
    WaitingEntry,
)

BOTH = ("device", "core")
MESSAGE = (
    "0/4 nodes are available: 1 Insufficient aws.amazon.com/neuron, 3 node(s) didn't match Pod's node"
    " affinity/selector. Capacity: 4 Neuron devices free on 1 node, pod needs 8."
)
TRAIN = PodSummary("ml", "train-1", "my-scheduler", 0, 1.0, "8 Neuron devices", "train")


def torus(name: str = "trn1-a", *, holders: tuple[Holder, ...] = (), cores: str = "f" * 32) -> MachinePicture:
    """Return a machine of trn1.32xlarge."""
    free = sum(cores[core : core + 2] == "ff" for core in range(0, 32, 2))
    blocks = (16,) if free == 16 else (4,) * (free // 4)
    return MachinePicture(
        name,
        "trn1.32xlarge",
        "torus",
        16,
        2,
        BOTH,
        cores,
        holders,
        free_devices=free,
        free_blocks=blocks,
        zone="us-east-1a",
    )


def fleet() -> Fleet:
    """Return one machine of each shape; among them a cordoned one, an unknown holder, double-booked and kept cores."""
    train = Holder("ml", "train-0", ((0, 23),))
    infer = Holder("web", "infer-0", ((0, 5),))
    half = Holder("web", "half-a-device", ((6, 6),))
    machines = (
        MachinePicture(
            "inf2-a", "inf2.48xlarge", "ring", 12, 2, BOTH, "f" * 24, withheld="cordoned", zone="us-east-1b"
        ),
        MachinePicture(
            "inf1-a", "inf1.6xlarge", "line", 4, 4, BOTH, "d" * 4 + "u" * 12, (Holder("old", "lost", unknown=True),)
        ),
        torus(holders=(train,), cores="h" * 24 + "f" * 8),
        MachinePicture(
            "inf2-b",
            "inf2.24xlarge",
            "line",
            6,
            2,
            BOTH,
            "h" * 7 + "f" + "kkff",
            (infer, half, Holder("ml", "next-0", ((8, 9),), kept=True)),
            free_devices=1,
            free_blocks=(1,),
            set_aside=True,
            zone="us-east-1b",
        ),
    )
    types = (
        TypeSummary("inf1.6xlarge", 1, 4, 0, 1, 3, 0),
        TypeSummary("inf2.24xlarge", 1, 6, 1, 4, 1, 1),
        TypeSummary("inf2.48xlarge", 1, 12, 0, 0, 12, 0),
        TypeSummary("trn1.32xlarge", 1, 16, 4, 12, 0, 4),
    )
    return Fleet(machines, types)


def waiting() -> Waiting:
    return Waiting((WaitingEntry(TRAIN, "capacity", MESSAGE),), 1)


def explanation() -> Explanation:
    """Return why it waits, with a change of each sort that is shown in its own way."""
    leaving = LeavingPod("ml", "train-0", 5, 1.0, "12 Neuron devices", ("train",), violates=True)
    return Explanation(
        TRAIN,
        Verdict.WAITS,
        MESSAGE,
        "capacity",
        4,
        groups=(
            NodeGroup(1, ("trn1-a",), "trn1.32xlarge", "NeuronFit", "Insufficient neuron", "4 are free, 8 needed"),
            NodeGroup(3, ("inf2-a", "inf1-a"), reason="didn't match Pod's node affinity/selector", kept_for=("a/b",)),
        ),
        changes=(
            SuggestedChange(ChangeKind.COUNT, "Ask for 4 devices.", "kubectl edit pod train-1", "trn1-a"),
            SuggestedChange(ChangeKind.DEPARTURE, "ml/train-0 ends.", node_name="trn1-a", pods=(leaving,)),
        ),
        notes=("Budgets could not be read.",),
        capacity_request="Asked the autoscaler for 1 trn1.32xlarge.",
    )


def decisions() -> RecentDecisions:
    """Return a decision and a refusal."""
    placed = PodSummary("ml", "train-0", asks="12 Neuron devices")
    return RecentDecisions(
        (
            RecentDecision(1700000002.0, TRAIN, cause="capacity", message=MESSAGE),
            RecentDecision(
                1700000001.0,
                placed,
                "trn1-a",
                tuple(range(12)),
                message="1 of 4 nodes fit; it gets trn1-a (devices 0-11).",
            ),
        )
    )

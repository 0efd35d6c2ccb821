"""Lines survive the way there and back; what is no line is refused with one sentence."""

import json

import attrs
import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination, SetAside
from neuron_scheduler.journal import changes
from neuron_scheduler.journal.records import (
    At,
    Decided,
    Lost,
    Record,
    RecordedProfile,
    Started,
    UnreadableLineError,
    line_of,
    record_of,
)
from neuron_scheduler.model.namespace import Namespace
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from neuron_scheduler.model.volumes import Attachable, InlineVolume, PersistentVolumeClaim, StorageClass
from neuron_scheduler.model.workload import Workload
from neuron_scheduler.neuron.core_mask import CoreMask
from tests.support.builders import node, pod

WORKLOAD = Workload("w", "apps/v1", "ReplicaSet", "ns", "w", LabelSelector((Requirement("a", Operator.IN, ("b",)),)))
CLAIM = PersistentVolumeClaim(uid="c", namespace="ns", name="c")
RECORDS: list[Record] = [
    Started(1.5, "1.0", (RecordedProfile("my-scheduler", ("SmallestBlock",), count_unknown_only=True),)),
    At(2.0),
    Lost(3),
    Decided(4.0, pod("p", devices=4), "n", (0, 1, 2, 3), feasible=2, nodes=3),
    Decided(4.0, pod("p", devices=4), nodes=3, cause="capacity", reasons=(("Too many pods", 3),)),
    changes.PutNode(node("n", "trn1.32xlarge")),
    changes.RemoveNode("n"),
    changes.SetNodeAside("n", SetAside(1, CoreMask(1 << 100))),
    changes.SetNodeAside("n", None),
    changes.PutPod(pod("p", devices=4, on="n")),
    changes.PutUnreadablePod(pod("p", on="n")),
    changes.Assume(pod("p", on="n"), CoreMask(1 << 127)),
    changes.RemovePod("p"),
    changes.Nominate("n", Nomination(pod("p"), CoreMask(3), frozenset({"a", "b"}))),
    changes.Nominate(
        "n", Nomination(pod("p"), volumes=("ns/c", Attachable("d", "h", "p"), InlineVolume("p", "d", "h")))
    ),
    changes.ClearNomination("p"),
    changes.PutNamespace(Namespace("u", "ns", {"a": "\x1b[31m"})),
    changes.RemoveNamespace("ns"),
    changes.PutWorkload(WORKLOAD),
    changes.RemoveWorkload(WORKLOAD),
    changes.PutStorage(StorageClass(uid="s", name="s")),
    changes.RemoveStorage(CLAIM),
    changes.AssumeVolume(CLAIM),
    changes.RestoreVolume(CLAIM),
]


@pytest.mark.parametrize(
    "record", RECORDS, ids=[f"{number}-{type(record).__name__}" for number, record in enumerate(RECORDS)]
)
def test_there_and_back(record: Record) -> None:
    """A record is one line of ASCII, without what could control a terminal."""
    line = line_of(record)
    assert line.endswith(b"\n")
    assert line[:-1].decode().isprintable()
    assert record_of(line) == record


def test_a_decision_takes_a_few_hundred_bytes() -> None:
    """What is at its default value is left out."""
    assert len(line_of(RECORDS[3])) < 400


def test_how_unknown_ids_count_is_not_recorded_with_a_nomination() -> None:
    """Nobody reads it, and an earlier version refuses a field that it does not know; a line that has it is read."""
    trusting = Nomination(pod("p"), CoreMask(3), count_unknown_only=True)
    recorded = line_of(changes.Nominate("n", trusting))
    assert recorded == line_of(changes.Nominate("n", attrs.evolve(trusting, count_unknown_only=False)))
    line = json.loads(recorded)
    line["nomination"]["count_unknown_only"] = True
    assert record_of(json.dumps(line).encode()) == changes.Nominate("n", trusting)


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"{", b"[]", b"null", b"1", b'"a"', b"\xff", b"{}", b'{"record":"None"}', b'{"record":["At"]}'),
        *(b'{"record":"At"}', b'{"record":"At","at":"soon"}', b'{"record":"At","at":1,"more":2}', b"[" * 100_000),
        *(
            b'{"record":"PutNode","node":{}}',
            b'{"record":"PutPod","pod":{"uid":"a","namespace":"b","name":"c","neuron":1}}',
        ),
        *(b'{"record":"At","at":NaN}', b'{"record":"At","at":-Infinity}', b'{"record":"At","at":1e999}'),
        *(b'{"record":"Decided","at":1,"pod":null}', b'{"record":"At","at":' + b"9" * 5000 + b"}"),
    ],
    ids=lambda line: repr(line[:60]),
)
def test_what_is_no_record(line: bytes) -> None:
    """A damaged or foreign line has no traceback for its reader."""
    with pytest.raises(UnreadableLineError):
        record_of(line)


def test_another_format() -> None:
    """A journal of another version names the versions."""
    head = json.loads(line_of(RECORDS[0])) | {"format": 9}
    with pytest.raises(UnreadableLineError, match="its format is 9, and this version reads 1"):
        record_of(json.dumps(head).encode())

"""What the ports serve beside health and metrics is there if the settings say so."""

import json
from pathlib import Path
from typing import cast

from neuron_scheduler.endpoints.exchange import Request
from neuron_scheduler.journal.reading import records_in
from neuron_scheduler.journal.records import Decided
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.question_wiring import pages_of
from neuron_scheduler.settings.config import Config
from tests.support.wired_scheduler import WiredScheduler


def test_nothing_of_the_cluster_is_served_by_default() -> None:
    """Without the settings there are no pages."""
    world = WiredScheduler()
    assert pages_of(world.config, world.parts, cast(Client, world)) == {}


async def test_decisions_are_shown_and_recorded(tmp_path: Path) -> None:
    """The journal and the answers both learn of each decision."""
    path = tmp_path / "decisions.jsonl"
    world = WiredScheduler(
        Config(leader_elect=False, answer_questions=True, serve_page=True, decision_journal=str(path))
    )
    pages, journal = pages_of(world.config, world.parts, cast(Client, world)), world.parts.journal
    assert journal is not None
    await journal._write_what_waits()  # begins the file
    await world.bind(["p"])
    await journal.finish()
    assert [record.pod.name for record in records_in([str(path)]) if isinstance(record, Decided)] == ["p"]
    for informer in world.parts.informers:
        informer.synced.set()
    reply = await pages["/v1/decisions"].answer(Request("GET", "/v1/decisions"))
    assert len(json.loads(reply.body + b"".join(reply.more))["decisions"]) == 1

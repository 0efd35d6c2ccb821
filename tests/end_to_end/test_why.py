"""Condition, Event, log and `why` on a real API server: one explanation, with the same numbers."""

from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from neuron_scheduler.explain.answers import Explanation, Verdict, from_json
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import SchedulerProcess
from tests.end_to_end.test_commands import ask
from tests.end_to_end.workload import add_nodes, events_of, placed, refused

PREEMPTION: Final = " preemption: "
REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "seven": ({"neuron": 7, "nodeSelector": {"kubernetes.io/hostname": "trn1"}}, "invalid_count"),
    "many": ({"neuron": 32}, "capacity"),
    "elsewhere": ({"neuron": 1, "nodeSelector": {"team": "blue"}}, "affinity"),
    "whole": ({"neuron": 16}, "capacity"),
}


async def test_one_explanation_everywhere(
    api: RestClient, scheduler: SchedulerProcess, plane: ControlPlane, tmp_path: Path
) -> None:
    """What `why` says in its sentence is in the condition, the Event and the log; its groups are all nodes."""
    await add_nodes(scheduler, api, trn1="trn1.32xlarge", inf2="inf2.xlarge")
    await placed(api, "first", neuron=4, nodeSelector={"kubernetes.io/hostname": "trn1"})
    why = partial(ask, "why", "-o", "json", kubeconfig=plane.kubeconfig(tmp_path / "admin"))
    for name, (spec, cause) in REFUSED.items():
        condition = await refused(api, name, **spec)
        answer = from_json(msgspec.json.decode(await why(name, code=1)), Explanation)
        assert (answer.verdict, answer.cause) == (Verdict.WAITS, cause)
        assert condition["message"].partition(PREEMPTION)[0] == answer.message
        (event,) = await events_of(api, name, "FailedScheduling")
        assert event["note"] == condition["message"]
        await scheduler.line(f'pod="default/{name}"', answer.message)
        assert sum(group.nodes for group in answer.groups) == answer.nodes == 2

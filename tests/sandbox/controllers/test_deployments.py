"""How far a rollout may go at once."""

from typing import Any

import pytest

from neuron_scheduler.sandbox.controllers.deployments import limits


@pytest.mark.parametrize(
    ("replicas", "strategy", "want"),
    [
        (4, {"maxSurge": "25%", "maxUnavailable": "25%"}, (4, 1, 1)),
        (2, {"maxSurge": "25%", "maxUnavailable": "25%"}, (2, 1, 0)),
        (10, {"maxSurge": "25%", "maxUnavailable": "25%"}, (10, 3, 2)),
        (2, {"maxSurge": 0, "maxUnavailable": 1}, (2, 0, 1)),
        (2, {"maxSurge": 0, "maxUnavailable": "25%"}, (2, 0, 1)),
        (3, {"maxSurge": "0%", "maxUnavailable": 9}, (3, 0, 3)),
        (0, {"maxSurge": 1, "maxUnavailable": 1}, (0, 1, 0)),
    ],
)
def test_surge_and_unavailable(replicas: int, strategy: dict[str, Any], want: tuple[int, int, int]) -> None:
    """A share of the surge is rounded up, one of the unavailable down; both 0 means one unavailable."""
    spec = {"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": strategy}}
    assert limits({"spec": spec}) == want

"""Which kinds of PodGroup an API server serves: the newest version of each, whatever else is answered."""

from typing import Any

import pytest

from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects.pod_groups import POD_GROUPS
from neuron_scheduler.kube.watch.discovery import served_kinds
from tests.support.listing_server import listing

BETA, ALPHA, COSCHEDULING = (resource.path.rpartition("/")[0] for resource in POD_GROUPS)
YES, OTHERS = {"resources": [{"name": "workloads"}, {"name": "podgroups"}]}, {"resources": [{"name": "workloads"}]}


@pytest.mark.parametrize(
    ("served", "found"),
    [
        ({}, []),
        ({BETA: YES, ALPHA: YES}, [BETA]),
        ({BETA: OTHERS, ALPHA: YES, COSCHEDULING: YES}, [ALPHA, COSCHEDULING]),
        ({BETA: {"kind": "odd"}, ALPHA: [], COSCHEDULING: YES}, [COSCHEDULING]),
    ],
    ids=range(4),
)
@pytest.mark.parametrize("default", [404, 403, 500])
async def test_what_is_served(served: dict[str, Any], found: list[str], default: int) -> None:
    """An answer that says nothing counts as no: the process goes on without the kind."""
    async with (
        listing(objects=served, default=default) as server,
        Client(connection=Connection(server.url, "a test")) as client,
    ):
        assert [resource.path.rpartition("/")[0] for resource in await served_kinds(client)] == found

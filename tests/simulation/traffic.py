"""
What a request is for, as the faults of a scenario name it.

Refuses to read bodies.
"""

from aiohttp import web

from tests.simulation.transport import Transport


def client_of(request: web.Request) -> str:
    """Return the name of the process that has sent a request; empty if it has hung up."""
    transport = request.transport
    return transport._connection.client_name if isinstance(transport, Transport) else ""


def is_watch(request: web.Request) -> bool:
    """Return whether a request opens a watch."""
    return request.query.get("watch", "") in {"1", "true"}


def traffic_of(request: web.Request) -> str:
    """
    Return one of `bindings`, `lease`, `watches`, `deletes`, `events`, `statuses`, `reviews`, `lists`, `gets`, `writes`.

    Everything about the Lease is `lease`, its watch too.
    """
    path, method = request.path, request.method
    last = path.rpartition("/")[2]
    by_path = {
        "bindings": last == "binding",
        "lease": "/leases" in path,
        "watches": is_watch(request),
        "deletes": method == "DELETE",
        "events": "/events" in path,
        "statuses": last == "status",
        "reviews": last.endswith("reviews"),
        "lists": method == "GET" and path.count("/") in {3, 4},
        "gets": method == "GET",
    }
    return next((name for name, holds in by_path.items() if holds), "writes")

"""
A caller of the extender protocol, like kube-scheduler: filter, prioritize the nodes that are left, bind to the best.

It knows the protocol alone: neither an API server nor a queue.
"""

from collections.abc import Sequence
from typing import Any

import aiohttp
import attrs


@attrs.frozen
class ExtenderCaller:
    """Asks the extender on a port of 127.0.0.1."""

    port: int

    async def ask(self, verb: str, request: Any) -> Any:
        """Return the answer to a request; kube-scheduler takes any other status for an error."""
        async with (
            aiohttp.ClientSession(trust_env=False) as session,
            session.post(f"http://127.0.0.1:{self.port}/{verb}", json=request) as response,
        ):
            return await response.json() if response.status == 200 else {"Error": await response.text()}

    async def chosen(self, pod: Any, nodes: Sequence[str]) -> str:
        """Return the best of these nodes for a pod; empty if none takes it."""
        filtered = await self.ask("filter", {"Pod": pod, "Nodes": None, "NodeNames": nodes})
        assert not filtered["Error"]
        names = filtered["NodeNames"]
        if not names:
            return ""
        scores = await self.ask("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": names})
        return str(max(scores, key=lambda host: host["Score"])["Host"])

    async def bind(self, pod: Any, node_name: str) -> str:
        """Return the error of a Binding; empty if there is none."""
        metadata = pod["metadata"]
        request = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node_name,
        }
        return str((await self.ask("bind", request))["Error"])

    async def schedule(self, pod: Any, nodes: Sequence[str]) -> str:
        """Schedule a pod, and again after an error; return its node, empty if none takes it."""
        while node_name := await self.chosen(pod, nodes):
            if not await self.bind(pod, node_name):
                return node_name
        return ""

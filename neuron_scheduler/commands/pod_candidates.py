"""
The names of pods, for a shell that completes one: those of the namespace that the words before name.

Does not make a person wait: no answer in a few seconds is no name.
"""

import argparse
import contextlib
from collections.abc import Sequence
from typing import Final

import anyio
import msgspec

from neuron_scheduler.commands.arguments import kubeconfig_of, overrides_of
from neuron_scheduler.commands.reading import DEFAULT_NAMESPACE, run_async
from neuron_scheduler.errors import NeuronSchedulerError
from neuron_scheduler.kube.http import auth
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.pods import PODS

WITHIN: Final = 3.0
MOST: Final = 500
MOST_BYTES: Final = 64 << 20


class _Pod(wire.Wire):
    metadata: wire.ObjectMeta


class _Pods(wire.Wire):
    items: list[_Pod]


def pod_names(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return the names of the pods that a command with these words could mean; none if they cannot be listed."""
    with contextlib.suppress(NeuronSchedulerError, argparse.ArgumentError, OSError, ValueError, TimeoutError):
        arguments, _ = parser.parse_known_args(words)
        if not (arguments.files or arguments.pod):
            names: list[str] = run_async(_pod_names, arguments)
            return names
    return []


async def _pod_names(arguments: argparse.Namespace) -> list[str]:
    with anyio.fail_after(WITHIN):
        connection = await auth.load(kubeconfig_of(arguments), overrides=overrides_of(arguments))
        namespace = arguments.namespace or connection.namespace or DEFAULT_NAMESPACE
        async with Client(connection=connection) as client:
            answer = await client.request(
                "GET",
                f"/api/v1/namespaces/{namespace}/pods",
                params={**PODS.params, "limit": str(MOST)},
                most_bytes=MOST_BYTES,
            )
    return [pod.metadata.name for pod in msgspec.json.decode(answer.body, type=_Pods).items]

"""
Asks the running scheduler over its own port, in place of reading the whole cluster.

It answers within the rights of the user whose token is sent, so a tenant with rights in one namespace gets an answer,
too. The token is that of the kubeconfig's user, or `--token`. It is not sent where somebody on the way could read it.
"""

import argparse
import time
from functools import partial
from urllib.parse import urlsplit

import msgspec

from neuron_scheduler.commands.arguments import connection_arguments, kubeconfig_of
from neuron_scheduler.commands.reading import DEFAULT_NAMESPACE, A_co, Answered, in_time, run_async
from neuron_scheduler.explain.answers import from_json
from neuron_scheduler.kube.http import auth
from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.credentials import Fixed
from neuron_scheduler.kube.http.tls import Tls
from neuron_scheduler.telemetry.errors import ApiError, ConfigurationError


def ask(
    arguments: argparse.Namespace, path: str, params: dict[str, str], answer: type[A_co], body: bytes | None = None
) -> Answered[A_co]:
    """Return the scheduler's answer; a `namespace` in `params` that is empty becomes that of the context."""
    return run_async(_ask, arguments, path, params, answer, body)


async def _ask(
    arguments: argparse.Namespace, path: str, params: dict[str, str], answer: type[A_co], body: bytes | None
) -> Answered[A_co]:
    connection = await _connection(arguments)
    server, namespace = connection.server, connection.namespace or DEFAULT_NAMESPACE
    if params.get("namespace") == "":
        params = params | {"namespace": namespace}
    async with Client(connection=connection) as client:
        request = partial(client.request, "GET" if body is None else "POST", path, params=params, body=body)
        try:
            received = await in_time(arguments, server, request)
            return Answered(from_json(msgspec.json.decode(received.body), answer), namespace, time.time())
        except ApiError as error:
            raise ConfigurationError(f"{server} refuses to answer: {error.message or error}") from error
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise ConfigurationError(
                f"the answer of {server} is not understood: {error}; is it a scheduler of this version?"
            ) from error


async def _connection(arguments: argparse.Namespace) -> Connection:
    server = arguments.ask.rstrip("/")
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"--ask: {server!r} is not an address; write http://HOST:PORT or https://HOST:PORT")
    if parts.scheme == "http" and not auth.is_loopback(parts.hostname):
        raise ConfigurationError(
            f"--ask: your token would be sent to {parts.hostname} without TLS; use https, or kubectl port-forward"
        )
    reader = Connection("", "--token", Fixed(f"Bearer {arguments.token}"))
    if not arguments.token or kubeconfig_of(arguments):
        reader = await auth.load(**connection_arguments(arguments) | {"master": None})
    tls = None
    if parts.scheme == "https":
        tls = Tls(
            clock=time.monotonic,
            ca_file=arguments.certificate_authority or None,
            verify=not arguments.insecure_skip_tls_verify,
            origin="--ask",
        )
        tls.context()
    return Connection(server, "--ask", reader.credentials, tls, namespace=arguments.namespace or reader.namespace)

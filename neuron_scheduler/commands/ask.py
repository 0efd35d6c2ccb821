"""
Asks the running scheduler over its own port, in place of reading the whole cluster.

It answers within the rights of the user whose token is sent, so a tenant with rights in one namespace gets an answer,
too. The token is that of the kubeconfig's user, or `--token`. Does not send a token that somebody on the way could
read.
"""

import argparse
import ipaddress
import time
from typing import Any, TypeVar
from urllib.parse import urlsplit

import attrs
import msgspec

from neuron_scheduler.commands.arguments import connecting, kubeconfig_of
from neuron_scheduler.commands.reading import DEFAULT_NAMESPACE, in_time, run_async
from neuron_scheduler.explain.answers import from_json
from neuron_scheduler.kube.http import auth
from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.credentials import Fixed
from neuron_scheduler.kube.http.tls import Tls
from neuron_scheduler.telemetry.errors import ApiError, ConfigurationError

T = TypeVar("T")


@attrs.frozen
class Asked:
    """An answer as JSON values, and the namespace that the arguments or the context name."""

    value: Any
    namespace: str


def ask(arguments: argparse.Namespace, path: str, params: dict[str, str], body: bytes | None = None) -> Asked:
    """
    Return the scheduler's answer.

    Args:
        arguments: `ask` is the address; the connection's flags say whom to trust there, and who asks.
        path: of the question, such as `/v1/why`.
        params: of the question; a `namespace` that is empty becomes that of the context.
        body: of a question that has one.

    Raises:
        ConfigurationError: it refuses to answer, or is no scheduler; the address cannot be used.
        UnreachableError: nobody answers.
    """
    asked: Asked = run_async(_ask, arguments, path, params, body)
    return asked


async def _ask(arguments: argparse.Namespace, path: str, params: dict[str, str], body: bytes | None) -> Asked:
    connection = await _connection(arguments)
    namespace = connection.namespace or DEFAULT_NAMESPACE
    if params.get("namespace") == "":
        params = params | {"namespace": namespace}
    async with Client(connection=connection) as client:
        value = await in_time(arguments, connection.server, lambda: _answer(client, path, params, body))
    return Asked(value, namespace)


async def _answer(client: Client, path: str, params: dict[str, str], body: bytes | None) -> Any:
    server = client.connection.server
    try:
        answer = await client.request("GET" if body is None else "POST", path, params=params, body=body)
        return msgspec.json.decode(answer.body)
    except ApiError as error:
        raise ConfigurationError(f"{server} refuses to answer: {error.message or error}") from error
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise ConfigurationError(f"{server} is no scheduler: {error}") from error


def understood(value: Any, answer: type[T]) -> T:
    """
    Return an answer that was received.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        return from_json(value, answer)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise ConfigurationError(
            f"the scheduler's answer is not understood: {error}; is it of another version?"
        ) from error


async def _connection(arguments: argparse.Namespace) -> Connection:
    """
    Return the connection to the scheduler at `--ask`.

    Raises:
        ConfigurationError: the address, or the user of the kubeconfig, cannot be used.
    """
    server = arguments.ask.rstrip("/")
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"--ask: {server!r} is not an address; write http://HOST:PORT or https://HOST:PORT")
    if parts.scheme == "http" and not _is_this_host(parts.hostname):
        raise ConfigurationError(
            f"--ask: your token would be sent to {parts.hostname} without TLS; use https, or kubectl port-forward"
        )
    reader = Connection("", "--token", Fixed(f"Bearer {arguments.token}"))
    if not arguments.token or kubeconfig_of(arguments):
        reader = await auth.load(**connecting(arguments) | {"master": None})
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


def _is_this_host(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"

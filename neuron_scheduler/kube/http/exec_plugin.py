"""
One run of a client-go credential plugin such as `aws eks get-token`.

Source: `client-go/plugin/pkg/client/auth/exec/exec.go` and client.authentication.k8s.io/v1. A plugin is a foreign
program: its output and its time are limited, and a child that it leaves behind is not waited for. It is run by
a thread, because asyncio's child watchers differ by version and by loop, and some wait for every holder of the pipes.
Does not repeat what a plugin prints on stdout or gets in its environment: both hold secrets.
"""

import datetime as dt
import math
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from typing import IO, Annotated, Any, Final, cast

import anyio.to_thread
import attrs
import msgspec

from neuron_scheduler.errors import CredentialsError

API_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
TIMEOUT: Final = 30.0
MOST_OUTPUT: Final = 1 << 20  # bytes; a token has a few thousand
GRACE: Final = 0.5  # seconds that output may take after the plugin has ended
EXCERPT: Final = 500  # bytes of stderr in an error

_STEP: Final = 0.05  # seconds between looks at whether the plugin has ended


@attrs.frozen
class Ticket:
    """What one run of a plugin returned: a token, or a certificate with its key; `expires` in Unix seconds."""

    token: str = attrs.field(default="", repr=False)
    certificate: tuple[str, str] | None = attrs.field(default=None, repr=False)
    expires: float | None = None


@attrs.frozen
class Plugin:
    """
    A command and its input.

    Attributes:
        environment: the whole of it, not only what is added.
        cluster: the ExecCredential's `spec.cluster`, for plugins that ask for it.
        install_hint: what the kubeconfig says to do if the command is missing.
    """

    command: str
    arguments: tuple[str, ...] = attrs.field(default=(), repr=False)
    environment: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    api_version: str = API_VERSIONS[0]
    cluster: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    install_hint: str = ""

    async def run(self) -> Ticket:
        """
        Run the command once, without a terminal and under a time limit; cancelled, the command is killed.

        Raises:
            CredentialsError: it could not be run, failed, hung, or printed no credentials.
        """
        given_up = threading.Event()
        try:
            output = await anyio.to_thread.run_sync(self._output, given_up, abandon_on_cancel=True)
        finally:
            given_up.set()
        return read_ticket(output, self.api_version)

    def _output(self, given_up: threading.Event) -> bytes:
        name = f"credential plugin {self.command}"
        try:
            with self._start() as process:
                try:
                    output, errors = _communicate(process, given_up)
                finally:
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)
        except FileNotFoundError as error:
            hint = _one_line(self.install_hint) or "install it, or correct the command"
            raise CredentialsError(f"{name} cannot be found; {hint}") from error
        except (OSError, ValueError) as error:  # TimeoutError is one
            raise CredentialsError(f"{name} failed: {error}") from error
        if process.returncode:
            excerpt = _one_line(errors[-EXCERPT:].decode(errors="replace"))
            raise CredentialsError(f"{name} ended with {process.returncode}: {excerpt}")
        return output

    def _start(self) -> subprocess.Popen[bytes]:
        spec: dict[str, Any] = {"interactive": False}
        if self.cluster is not None:
            spec["cluster"] = self.cluster
        info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        return subprocess.Popen(  # noqa: S603 - the kubeconfig's owner chose the command
            [self.command, *self.arguments],
            env={**self.environment, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that its children can be killed with it
        )


def _one_line(text: str) -> str:
    """Return the text in one line of printable characters."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def _communicate(process: subprocess.Popen[bytes], given_up: threading.Event) -> tuple[bytes, bytes]:
    """Return what the process has written to stdout, and the end of stderr, when it has ended."""
    deadline, ends = time.monotonic() + TIMEOUT, math.inf
    written = {process.stdout: b"", process.stderr: b""}
    with selectors.DefaultSelector() as selector:
        for pipe in written:
            selector.register(cast(IO[bytes], pipe), selectors.EVENT_READ)
        while (selector.get_map() or process.poll() is None) and time.monotonic() < ends:
            for key, _ in selector.select(_STEP):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                pipe = cast(IO[bytes], key.fileobj)
                written[pipe] = (written[pipe] + data)[-MOST_OUTPUT:]
            if len(written[process.stdout]) == MOST_OUTPUT:
                raise OSError(f"it wrote {MOST_OUTPUT} bytes or more")
            if given_up.is_set() or time.monotonic() > deadline:
                raise TimeoutError(f"no answer within {TIMEOUT:.0f} s")
            if ends == math.inf and process.poll() is not None:
                ends = time.monotonic() + GRACE  # a child that it left behind may hold the pipes
    return written[process.stdout], written[process.stderr]


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[dt.datetime, msgspec.Meta(tz=True)] | None = None


class _Credential(msgspec.Struct, rename="camel"):
    api_version: str
    status: _Status


def read_ticket(output: bytes, api_version: str) -> Ticket:
    """
    Return what an ExecCredential on a plugin's stdout grants.

    Raises:
        CredentialsError: it is no ExecCredential of that version, or grants nothing that can be sent.
    """
    try:
        credential = msgspec.json.decode(output, type=_Credential)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CredentialsError(f"credential plugin did not print an ExecCredential: {error}") from error
    status = credential.status
    if credential.api_version != api_version:
        raise CredentialsError(
            f"credential plugin answered with apiVersion {credential.api_version[:60]!r}, expected {api_version}"
        )
    certificate, key = status.client_certificate_data, status.client_key_data
    if bool(certificate) != bool(key):
        raise CredentialsError("credential plugin gave a certificate without its key, or a key without its certificate")
    if not status.token and not certificate:
        raise CredentialsError("credential plugin gave neither a token nor a certificate")
    expires = status.expiration_timestamp
    return Ticket(
        token=printable(status.token or "", "the credential plugin's token"),
        certificate=(certificate, key) if certificate and key else None,
        expires=None if expires is None else expires.timestamp(),
    )


def printable(token: str, name: str) -> str:
    """
    Return the token without the white space around it.

    Raises:
        CredentialsError: it cannot be part of a header.
    """
    token = token.strip()
    if not (token.isascii() and token.isprintable()):
        raise CredentialsError(f"{name} has characters that are not printable ASCII, so it cannot be sent")
    return token

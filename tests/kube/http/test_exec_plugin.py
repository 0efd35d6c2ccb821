"""A plugin is a foreign program: whatever it does, it ends in time and its secrets are not shown."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import attrs
import pytest

from neuron_scheduler.errors import CredentialsError
from neuron_scheduler.kube.http import exec_plugin as plugin_page
from neuron_scheduler.kube.http.exec_plugin import API_VERSIONS, Plugin, Ticket, read_ticket
from tests.support.patience import PATIENCE

V1 = API_VERSIONS[0]
GOOD = f"""print('{{"apiVersion": "{V1}", "status": {{"token": "secret"}}}}', flush=True)"""


def credential(**status: Any) -> bytes:
    """The output of a plugin."""
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status}).encode()


def test_reading_tickets() -> None:
    """Tokens with and without expiry, and certificates, are read."""
    timed = credential(token="t", expirationTimestamp="1970-01-01T00:16:40Z")
    pair = credential(clientCertificateData="c", clientKeyData="k")
    fine = credential(token="t", expirationTimestamp="1970-01-01T02:16:40.000000000+02:00", clientKeyData=None)

    assert Ticket("t") == read_ticket(credential(token="t"), V1)
    assert Ticket("t", expires=1000.0) == read_ticket(timed, V1)
    assert Ticket("t", expires=1000.0) == read_ticket(fine, V1)
    assert Ticket(certificate=("c", "k")) == read_ticket(pair, V1)


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"[]",
        b"{}",
        b'{"status": null}',
        credential(),
        credential(clientCertificateData="c"),
        credential(token="t", clientKeyData="k"),
        credential(token=17),
        credential(token="two\nlines"),
        credential(token="t", expirationTimestamp="soon"),
        credential(token="t", expirationTimestamp="2030-01-01T00:00:00"),
        credential(token="t", expirationTimestamp="10000-01-01T00:00:00Z"),
        credential(token="t", expirationTimestamp=1e300),
        credential(token="t").replace(b"/v1", b"/v1beta1"),
    ],
)
def test_reading_anything_else(output: bytes) -> None:
    """An output that is no credential of the requested version is refused."""
    with pytest.raises(CredentialsError, match="credential plugin"):
        read_ticket(output, V1)


def python(script: str, **fields: Any) -> Plugin:
    """A plugin that is this Python program."""
    return Plugin(sys.executable, ("-c", script), dict(os.environ), **fields)


@pytest.mark.parametrize("cluster", [None, {"server": "https://api", "certificate-authority-data": b"pem"}])
async def test_the_input_of_a_plugin(cluster: dict[str, Any] | None) -> None:
    """Its input says that there is no terminal, has the version, and has the cluster if the kubeconfig asks for it."""
    script = "import json, os; i = json.loads(os.environ['KUBERNETES_EXEC_INFO']); print(json.dumps({'apiVersion': "
    script += "i['apiVersion'], 'status': {'token': json.dumps(i['spec'])}}))"
    info = json.loads((await python(script, cluster=cluster).run()).token)

    assert info.pop("interactive") is False
    assert info == ({} if cluster is None else {"cluster": {**cluster, "certificate-authority-data": "cGVt"}})


FAILING = {
    "import sys; sys.exit('expired\\n\\x1b[1msession')": "ended with 1: expired [1msession",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": "ended with -9",
    "print('token: secret')": "did not print an ExecCredential",
    "while True: print('secret' * 1000)": "wrote 1048576 bytes or more",
    "import sys; sys.stdout.buffer.write(bytes(range(256)))": "did not print an ExecCredential",
    "print('[' * 100_000)": "did not print an ExecCredential",
}


@pytest.mark.parametrize("script", FAILING)
async def test_plugins_that_fail(script: str) -> None:
    """The error shows the plugin's stderr, and not its stdout."""
    with pytest.raises(CredentialsError) as caught:
        await python(script).run()

    assert FAILING[script] in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_plugin_that_is_not_installed() -> None:
    """The kubeconfig's hint is shown, without control characters."""
    plugin = Plugin("/no/such/plugin", install_hint="Get it from\n\x1b[1mexample.com")
    with pytest.raises(CredentialsError, match=r"/no/such/plugin cannot be found; Get it from \[1mexample.com$"):
        await plugin.run()


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        (".", {}),
        (sys.executable, {"A=B": "c"}),
        (sys.executable, {"A": "b\0"}),
        (sys.executable, {"A": "b" * (1 << 20)}),
    ],
    ids=["a folder", "a name that is none", "a value that is none", "a value that is too long"],
)
async def test_plugins_that_cannot_be_run(command: str, environment: dict[str, str]) -> None:
    """Any error of the system becomes one of our errors."""
    with pytest.raises(CredentialsError, match="credential plugin"):
        await Plugin(command, ("-c", GOOD), environment).run()


async def test_much_on_stderr() -> None:
    """Much output on stderr does not block the plugin; the end of it is in the error."""
    script = "import sys; [sys.stderr.write('x' * 10_000) for _ in range(500)]; sys.exit('the end')"
    with pytest.raises(CredentialsError, match="the end") as caught:
        await python(script).run()

    assert len(str(caught.value)) < 1000


@attrs.define(eq=False)
class Family:
    """Observes a plugin that leaves a child with its stdout, and when both have ended."""

    child: int = 0
    begun: anyio.Event = attrs.field(factory=anyio.Event)
    ended: anyio.Event = attrs.field(factory=anyio.Event)

    async def listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read the child's pid, and then until both have closed the connection."""
        self.child = int(await reader.readline())
        self.begun.set()
        await reader.read()
        self.ended.set()
        writer.close()


@asynccontextmanager
async def family() -> AsyncIterator[tuple[Family, str]]:
    """Yield the observer, and the beginning of the plugin's script."""
    family_processes = Family()
    server = await asyncio.start_server(family_processes.listen, "127.0.0.1", 0)
    script = f"""
import os, socket, subprocess, sys, time
line = socket.create_connection({server.sockets[0].getsockname()[:2]})
line.set_inheritable(True)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False)
line.sendall(b"%d\\n" % child.pid)
"""
    yield family_processes, script
    server.close()
    with anyio.fail_after(PATIENCE):
        await family_processes.ended.wait()


async def test_a_plugin_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that hangs is killed after the time limit."""
    monkeypatch.setattr(plugin_page, "TIMEOUT", 0.2)
    with pytest.raises(CredentialsError, match="no answer within"):
        await python("import time; time.sleep(60)").run()


async def test_a_plugin_that_is_given_up() -> None:
    """When the run is cancelled, the plugin and its children are killed."""
    async with family() as (family_processes, script), anyio.create_task_group() as tasks:
        tasks.start_soon(python(script + "time.sleep(60)").run)
        await family_processes.begun.wait()
        tasks.cancel_scope.cancel()


async def test_a_child_that_holds_stdout() -> None:
    """The run ends with the plugin; a child that it leaves, such as a cache or an agent, is not killed."""
    async with family() as (family_processes, script):
        assert await python(script + GOOD).run() == Ticket("secret")
        assert not family_processes.ended.is_set()
        os.kill(family_processes.child, signal.SIGKILL)


async def test_a_plugin_that_closes_stdout_and_goes_on() -> None:
    """The run waits for the exit code."""
    with pytest.raises(CredentialsError, match="ended with 7"):
        await python(f"import os, sys, time; {GOOD}; os.close(1); os.close(2); time.sleep(0.1); os._exit(7)").run()

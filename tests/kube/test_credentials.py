"""Tokens are kept fresh, and the last good one is kept while it may be valid."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from neuron_scheduler.errors import CredentialsError
from neuron_scheduler.kube.credentials import ExecPlugin, Fixed, Ticket, TokenFile, read_ticket, run_plugin

V1 = "client.authentication.k8s.io/v1"


@attrs.define(eq=False)
class Clock:
    """Seconds that pass when told to."""

    now: float = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@attrs.define(eq=False)
class Plugin:
    """A plugin that gives, in turn, tokens with an expiry or failures."""

    results: list[Ticket | CredentialsError]
    runs: int = 0

    async def __call__(self) -> Ticket:
        """Run once."""
        self.runs += 1
        await anyio.sleep(0.001)
        result = self.results.pop(0)
        if isinstance(result, CredentialsError):
            raise result
        return result


FAILURE = CredentialsError("plugin failed")


async def test_fixed() -> None:
    """A header that never changes, or none."""
    assert await Fixed("Basic x").authorization() == "Basic x"
    assert await Fixed("Basic x").renew("Basic x") == "Basic x"
    assert await Fixed().authorization() is None
    assert Fixed().certificate() is None


async def test_a_token_file(tmp_path: Path) -> None:
    """It is stripped, re-read after a while, and at once after a 401."""
    path, clock = tmp_path / "token", Clock()
    path.write_text("one\n")
    tokens = TokenFile(str(path), clock)
    assert await tokens.authorization() == "Bearer one"

    path.write_text("two\n")
    assert await tokens.authorization() == "Bearer one"
    clock.now += 10
    assert await tokens.authorization() == "Bearer two"

    path.write_text("three")
    assert await tokens.renew("Bearer two") == "Bearer three"
    assert tokens.certificate() is None


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"], ids=repr)
async def test_a_token_file_that_is_unusable_for_a_moment(tmp_path: Path, content: bytes | None) -> None:
    """The last good token is kept, and without one the error says what to look at."""
    path, clock = tmp_path / "token", Clock()
    path.write_text("one")
    tokens = TokenFile(str(path), clock)
    await tokens.authorization()
    path.unlink() if content is None else path.write_bytes(content)
    clock.now += 60

    assert await tokens.authorization() == "Bearer one"
    with pytest.raises(CredentialsError, match="token"):
        await TokenFile(str(path), clock).authorization()


async def test_the_plugin_runs_when_its_token_is_about_to_expire() -> None:
    """A minute early, and not before."""
    clock, plugin = Clock(), Plugin([Ticket("one", expires=1000), Ticket("two", expires=2000)])
    credentials = ExecPlugin(plugin, clock)
    assert await credentials.authorization() == "Bearer one"
    clock.now = 939
    assert await credentials.authorization() == "Bearer one"
    clock.now = 940
    assert await credentials.authorization() == "Bearer two"


async def test_a_token_without_expiry_is_kept() -> None:
    """Only a 401 replaces it."""
    credentials = ExecPlugin(Plugin([Ticket("one"), Ticket("two")]), Clock(1e12))
    assert await credentials.authorization() == "Bearer one"
    assert await credentials.authorization() == "Bearer one"
    assert await credentials.renew("Bearer one") == "Bearer two"


async def test_many_requests_one_run() -> None:
    """The plugin runs once however many wait for it, at first and after a 401."""
    plugin = Plugin([Ticket("one"), Ticket("two")])
    credentials = ExecPlugin(plugin, Clock())
    headers: list[str | None] = []

    async def ask() -> None:
        headers.append(await credentials.authorization())

    async def ask_again() -> None:
        headers.append(await credentials.renew("Bearer one"))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask_again)

    assert headers == ["Bearer one"] * 5 + ["Bearer two"] * 5
    assert plugin.runs == 2


async def test_a_failing_plugin_keeps_the_old_token_while_it_is_valid() -> None:
    """It is asked again after a pause, not at every request, and recovers."""
    clock, plugin = Clock(), Plugin([Ticket("one", expires=1000), FAILURE, FAILURE, Ticket("two", expires=2000)])
    credentials = ExecPlugin(plugin, clock)
    await credentials.authorization()
    clock.now = 950
    assert await credentials.authorization() == "Bearer one"
    assert await credentials.authorization() == "Bearer one"
    assert plugin.runs == 2
    clock.now = 960
    assert await credentials.authorization() == "Bearer one"
    clock.now = 970
    assert await credentials.authorization() == "Bearer two"


async def test_a_failing_plugin_with_an_expired_token() -> None:
    """Nothing is sent that is known to be rejected."""
    clock = Clock()
    credentials = ExecPlugin(Plugin([Ticket("one", expires=1000), FAILURE]), clock)
    await credentials.authorization()
    clock.now = 1000
    with pytest.raises(CredentialsError):
        await credentials.authorization()


async def test_a_failing_plugin_from_the_start() -> None:
    """There is nothing to keep."""
    with pytest.raises(CredentialsError):
        await ExecPlugin(Plugin([FAILURE]), Clock()).authorization()


def credential(**status: Any) -> bytes:
    """What a plugin prints."""
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status}).encode()


def test_reading_tickets() -> None:
    """Tokens with and without expiry, and certificates, are granted."""
    timed = credential(token="t", expirationTimestamp="1970-01-01T00:16:40Z")
    pair = credential(clientCertificateData="c", clientKeyData="k")

    assert Ticket("t") == read_ticket(credential(token="t"), V1)
    assert Ticket("t", expires=1000.0) == read_ticket(timed, V1)
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
        credential(token="t", expirationTimestamp="soon"),
        credential(token="t").replace(b"/v1", b"/v1beta1"),
    ],
)
def test_reading_anything_else(output: bytes) -> None:
    """What is no credential of the version that was asked for grants nothing."""
    with pytest.raises(CredentialsError, match="credential plugin"):
        read_ticket(output, V1)


async def test_running_a_plugin() -> None:
    """It is run without a terminal, with the version it is to answer in."""
    script = "import json, os; i = json.loads(os.environ['KUBERNETES_EXEC_INFO']); print(json.dumps({'apiVersion': "
    script += "i['apiVersion'], 'status': {'token': str(i['spec']['interactive'])}}))"

    assert Ticket("False") == await run_plugin([sys.executable, "-c", script], dict(os.environ), V1)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["/no/such/plugin"], "could not be run"),
        ([sys.executable, "-c", "import sys; sys.exit('expired session')"], "expired session"),
    ],
)
async def test_plugins_that_fail(arguments: list[str], hint: str) -> None:
    """The error repeats what the plugin said."""
    with pytest.raises(CredentialsError, match=hint):
        await run_plugin(arguments, {}, V1)


async def test_a_plugin_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended after a while."""
    monkeypatch.setattr("neuron_scheduler.kube.credentials.PLUGIN_TIMEOUT", 0.2)
    with pytest.raises(CredentialsError, match="no answer within"):
        await run_plugin([sys.executable, "-c", "import time; time.sleep(60)"], {}, V1)

"""Tokens are renewed in the background, and the last good one is used while it may be valid."""

from pathlib import Path

import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.errors import CredentialsError
from neuron_scheduler.kube.http import credentials as credentials_page
from neuron_scheduler.kube.http.credentials import PAUSE, ExecPlugin, Fixed, TokenFile
from neuron_scheduler.kube.http.exec_plugin import Ticket
from neuron_scheduler.telemetry.logs import REMIND


@attrs.define(eq=False)
class Clock:
    """A clock that a test advances."""

    now: float = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@attrs.define(eq=False)
class Plugin:
    """A plugin that returns tickets or failures in turn; runs after `hangs_from` wait for the test."""

    results: list[Ticket | Exception]
    hangs_from: int | None = None
    runs: int = 0
    answers: anyio.Event = attrs.field(factory=anyio.Event)

    async def __call__(self) -> Ticket:
        """Run once."""
        self.runs += 1
        if self.hangs_from is not None and self.runs > self.hangs_from:
            await self.answers.wait()
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


async def settled(credentials: ExecPlugin) -> None:
    """Wait for the end of a run in the background."""
    while credentials._running is not None:
        await anyio.lowlevel.checkpoint()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the logged messages."""
    return [record.message for record in caplog.records]


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
    """The last good token is kept, and without one the error says what to check."""
    path, clock = tmp_path / "token", Clock()
    path.write_text("one")
    tokens = TokenFile(str(path), clock)
    await tokens.authorization()
    path.unlink() if content is None else path.write_bytes(content)
    clock.now += 60

    assert await tokens.authorization() == "Bearer one"
    with pytest.raises(CredentialsError, match="token"):
        await TokenFile(str(path), clock).authorization()


async def test_a_token_file_that_stays_missing_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """400 pods' requests and 401s write one line; another follows after ten minutes, and one after the recovery."""
    caplog.set_level("INFO")
    path, clock = tmp_path / "token", Clock()
    path.write_text("one")
    tokens = TokenFile(str(path), clock)
    await tokens.authorization()
    path.unlink()
    for _ in range(400):
        clock.now += 0.5
        assert await tokens.authorization() == "Bearer one"
        assert await tokens.renew("Bearer one") == "Bearer one"
    assert logged(caplog) == ["Could not read the token file, keeping the last token"]

    clock.now += REMIND
    await tokens.authorization()
    path.write_text("two")
    clock.now += 10
    assert await tokens.authorization() == "Bearer two"
    assert logged(caplog)[1:] == [
        "Could not read the token file, keeping the last token",
        "Token file can be read again",
    ]


async def test_a_token_file_that_never_gave_a_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every request fails, one line is written, and the file is not read for each."""
    tokens = TokenFile(str(tmp_path / "token"), Clock())
    for _ in range(400):
        with pytest.raises(CredentialsError, match="check that it is mounted"):
            await tokens.authorization()

    assert len(logged(caplog)) == 1


async def test_the_token_beside_a_token_file(tmp_path: Path) -> None:
    """It is sent until the file has a token; then the file's token is used."""
    path, clock = tmp_path / "token", Clock()
    tokens = TokenFile(str(path), clock, otherwise="beside")
    assert await tokens.authorization() == "Bearer beside"
    path.write_text("from-file")
    clock.now += 10
    assert await tokens.authorization() == "Bearer from-file"
    path.unlink()
    clock.now += 10
    assert await tokens.authorization() == "Bearer from-file"


@pytest.mark.parametrize("content", ["a\nX-Remote-User: admin", "t\u00f6ken", "a\x00b"])
async def test_a_token_that_would_be_another_header(tmp_path: Path, content: str) -> None:
    """A token that is not one line of ASCII is not sent."""
    path = tmp_path / "token"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CredentialsError, match="no token that can be sent"):
        await TokenFile(str(path), Clock()).authorization()


async def test_no_request_waits_while_the_token_is_valid() -> None:
    """After 80 % of the token's life the plugin runs once; while it hangs, the token is still used."""
    clock, plugin = Clock(100), Plugin([Ticket("one", expires=1100), Ticket("two", expires=3000)], hangs_from=1)
    credentials = ExecPlugin(plugin, clock)
    assert await credentials.authorization() == "Bearer one"
    clock.now = 899
    assert await credentials.authorization() == "Bearer one"
    assert plugin.runs == 1
    for clock.now in (900, 1000, 1099):
        assert await credentials.authorization() == "Bearer one"
    await anyio.lowlevel.checkpoint()
    assert plugin.runs == 2

    plugin.answers.set()
    await settled(credentials)
    assert await credentials.authorization() == "Bearer two"
    assert plugin.runs == 2


async def test_a_request_without_a_valid_token_waits_with_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a request does not end the plugin's run, whose token the next request uses."""
    monkeypatch.setattr(credentials_page, "PATIENCE", 0.0)
    plugin = Plugin([Ticket("one")], hangs_from=0)
    credentials = ExecPlugin(plugin, Clock())
    with pytest.raises(CredentialsError, match="has not answered"):
        await credentials.authorization()
    with anyio.move_on_after(0) as cancelled:
        await credentials.authorization()
    assert cancelled.cancelled_caught
    plugin.answers.set()
    await settled(credentials)

    assert await credentials.authorization() == "Bearer one"
    assert plugin.runs == 1


async def test_a_token_without_expiry_is_kept() -> None:
    """Only a 401 replaces it."""
    credentials = ExecPlugin(Plugin([Ticket("one"), Ticket("two")]), Clock(1e12))
    assert await credentials.authorization() == "Bearer one"
    assert await credentials.authorization() == "Bearer one"
    assert await credentials.renew("Bearer one") == "Bearer two"


async def test_a_token_that_comes_expired_is_used_for_a_moment() -> None:
    """The clocks may differ; the plugin is not run for each request."""
    clock, plugin = Clock(), Plugin([Ticket("one", expires=5), Ticket("two", expires=5)])
    credentials = ExecPlugin(plugin, clock)
    for _ in range(400):
        assert await credentials.authorization() == "Bearer one"
    clock.now += PAUSE
    assert await credentials.authorization() == "Bearer two"
    assert plugin.runs == 2


async def test_many_requests_one_run() -> None:
    """The plugin runs once for all requests that wait for it, at the start and after a 401."""
    plugin = Plugin([Ticket("one"), Ticket("two")])
    credentials = ExecPlugin(plugin, Clock())
    headers: list[str | None] = []

    async def ask() -> None:
        headers.append(await credentials.authorization())

    async def ask_again() -> None:
        headers.append(await credentials.renew("Bearer one"))

    for question in (ask, ask_again):
        async with anyio.create_task_group() as tasks:
            for _ in range(400):
                tasks.start_soon(question)

    assert headers == ["Bearer one"] * 400 + ["Bearer two"] * 400
    assert plugin.runs == 2


async def test_a_server_that_rejects_every_token_does_not_keep_the_plugin_busy() -> None:
    """After a run that a 401 forced there is a pause; the rejected token is returned meanwhile."""
    clock, plugin = Clock(), Plugin([Ticket("one"), Ticket("one"), Ticket("two")])
    credentials = ExecPlugin(plugin, clock)
    await credentials.authorization()
    for _ in range(400):
        assert await credentials.renew("Bearer one") == "Bearer one"
    assert plugin.runs == 2
    clock.now += PAUSE
    assert await credentials.renew("Bearer one") == "Bearer two"


async def test_a_rejected_certificate_is_replaced() -> None:
    """A plugin that returns a certificate runs again after a 401, although there is no header."""
    plugin = Plugin([Ticket(certificate=("a", "b")), Ticket(certificate=("c", "d"))])
    credentials = ExecPlugin(plugin, Clock())
    assert await credentials.authorization() is None
    assert credentials.certificate() == ("a", "b")
    assert await credentials.renew(None) is None
    assert credentials.certificate() == ("c", "d")


async def test_a_failing_plugin_keeps_the_old_token_while_it_is_valid(caplog: pytest.LogCaptureFixture) -> None:
    """It is run again after a pause, not for each request; each state is logged once."""
    caplog.set_level("INFO")
    clock, plugin = Clock(0), Plugin([Ticket("one", expires=1000), FAILURE, FAILURE, Ticket("two", expires=2000)])
    credentials = ExecPlugin(plugin, clock)
    await credentials.authorization()
    for now, runs in ((800, 2), (805, 2), (810, 3), (819, 3)):
        clock.now = now
        for _ in range(400):
            assert await credentials.authorization() == "Bearer one"
        await settled(credentials)
        assert plugin.runs == runs
    assert logged(caplog) == ["Credential plugin fails"]
    clock.now = 820
    await credentials.authorization()
    await settled(credentials)
    assert await credentials.authorization() == "Bearer two"
    assert logged(caplog) == ["Credential plugin fails", "Credential plugin works again"]


@pytest.mark.parametrize("failure", [FAILURE, RuntimeError("can't start new thread")], ids=repr)
async def test_a_failing_plugin_with_an_expired_token(failure: Exception) -> None:
    """An expired token is not sent, and 400 requests do not cause 400 runs."""
    clock, plugin = Clock(0), Plugin([Ticket("one", expires=1000), failure, Ticket("two", expires=3000)])
    credentials = ExecPlugin(plugin, clock)
    await credentials.authorization()
    clock.now = 1000
    for _ in range(400):
        with pytest.raises(CredentialsError, match=str(failure)):
            await credentials.authorization()
    assert plugin.runs == 2
    clock.now += PAUSE
    assert await credentials.authorization() == "Bearer two"


async def test_a_clock_that_is_set_back() -> None:
    """A 401 still runs the plugin, although the end of its pause is hours away."""
    clock, plugin = Clock(10_000), Plugin([Ticket("one"), FAILURE, Ticket("two")])
    credentials = ExecPlugin(plugin, clock)
    await credentials.authorization()
    assert await credentials.renew("Bearer one") == "Bearer one"
    clock.now = 100

    assert await credentials.renew("Bearer one") == "Bearer two"


async def test_a_failing_plugin_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    """The first failure is raised and not logged."""
    with pytest.raises(CredentialsError, match="plugin failed"):
        await ExecPlugin(Plugin([FAILURE]), Clock()).start()

    assert not logged(caplog)


async def test_a_plugin_that_answers_at_the_start() -> None:
    """The first request does not run it again."""
    plugin = Plugin([Ticket("one", expires=1e12)])
    credentials = ExecPlugin(plugin, Clock())
    await credentials.start()

    assert await credentials.authorization() == "Bearer one"
    assert plugin.runs == 1


def test_secrets_are_not_shown() -> None:
    """The representation of an object contains neither token nor key."""
    ticket = Ticket("secret", certificate=("certificate", "secret"))

    assert "secret" not in repr([Fixed("Bearer secret"), TokenFile("/x", Clock(), otherwise="secret"), ticket])

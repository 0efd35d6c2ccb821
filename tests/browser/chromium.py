"""
A headless Chromium for tests, driven by its DevTools protocol over a websocket.

A tab notes all that must not happen: messages on the console, exceptions, violations of the Content-Security-Policy,
requests that fail. Nothing here sleeps: a test waits inside the page, until a change makes a condition true.
"""

import asyncio
import itertools
import json
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import anyio
import attrs

from tests.browser.install import Browser
from tests.control_plane.component import DIE_WITH_PARENT
from tests.support.patience import PATIENCE

_FLAGS: Final = (
    "--headless",
    "--no-sandbox",  # as root, and the page is ours
    "--disable-gpu",
    "--disable-dev-shm-usage",  # /dev/shm is small in containers
    "--disable-breakpad",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-port=0",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
_LISTENING: Final = re.compile(r"DevTools listening on (ws://\S+)")
# Chromium's names of keys; the code makes Tab and Enter do what they do for a person.
_KEYS: Final = {
    "Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36,
    "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip
_UNTIL: Final = """
new Promise((resolve, reject) => {
  const started = Date.now();
  const look = () => {
    let value;
    try { value = %s; } catch (error) { value = false; }
    if (value) { observer.disconnect(); clearInterval(timer); resolve(value); }
    else if (Date.now() - started > %d) {
      observer.disconnect(); clearInterval(timer);
      reject(new Error("the page says:\\n" + document.body.innerText));
    }
  };
  const observer = new MutationObserver(look);
  observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  const timer = setInterval(look, 50);
  look();
})
"""


class PageError(AssertionError):
    """A script in the page failed, or what a test waits for did not come."""


@attrs.define(eq=False)
class Chromium:
    """A running browser."""

    _socket: aiohttp.ClientWebSocketResponse
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)
    _answers: dict[int, asyncio.Future[dict[str, Any]]] = attrs.field(factory=dict)
    _tabs: dict[str, "Tab"] = attrs.field(factory=dict)

    async def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Return the result of a command of the protocol."""
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        message = {"id": number, "method": method, "params": parameters}
        await self._socket.send_str(json.dumps(message | ({"sessionId": session} if session else {})))
        with anyio.fail_after(1.5 * PATIENCE):
            return await answer

    async def listen(self) -> None:
        """Hand out answers and events until the browser ends."""
        async for received in self._socket:
            message = json.loads(received.data)
            if "id" not in message:
                tab = self._tabs.get(message.get("sessionId", ""))
                if tab is not None:
                    tab.note(message["method"], message["params"])
            elif "error" in message:
                self._answers.pop(message["id"]).set_exception(PageError(message["error"]["message"]))
            else:
                self._answers.pop(message["id"]).set_result(message["result"])

    @asynccontextmanager
    async def tab(self) -> AsyncIterator["Tab"]:
        """Open an empty tab that shares nothing with others."""
        context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        try:
            target = await self.call("Target.createTarget", url="about:blank", browserContextId=context)
            attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
            tab = self._tabs[attached["sessionId"]] = Tab(self, attached["sessionId"])
            for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
                await tab.call(f"{domain}.enable")
            await tab.resize(1280, 900)
            yield tab
            del self._tabs[attached["sessionId"]]
        finally:
            await self.call("Target.disposeBrowserContext", browserContextId=context)


@attrs.define(eq=False)
class Tab:
    """
    A tab.

    Attributes:
        problems: what must not happen on our page, a line each.
        requests: addresses that the page has asked for, with their headers.
    """

    _browser: Chromium
    _session: str
    problems: list[str] = attrs.field(factory=list)
    requests: list[tuple[str, dict[str, str]]] = attrs.field(factory=list)
    _loaded: asyncio.Event = attrs.field(factory=asyncio.Event)

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the result of a command for this tab."""
        return await self._browser.call(method, self._session, **parameters)

    def note(self, method: str, event: Mapping[str, Any]) -> None:
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Network.requestWillBeSent":
                self.requests.append((event["request"]["url"], event["request"]["headers"]))
            case "Runtime.exceptionThrown":
                self.problems.append(str(event["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.problems.append(f"console.{event['type']}: {event['args']}")
            case "Log.entryAdded":
                self.problems.append(f"{event['entry']['level']}: {event['entry']['text']} {event['entry'].get('url')}")
            case "Audits.issueAdded":
                self.problems.append(f"{event['issue']['code']}: {event['issue']['details']}")
            case _:
                pass

    def complaints(self) -> list[str]:
        """Return the problems but requests that a stalled machine has cut off; the page asks again."""
        return [problem for problem in self.problems if "net::ERR_" not in problem]

    async def open(self, url: str) -> None:
        """Go to an address and wait until it has loaded, with its modules."""
        self._loaded.clear()
        failed = (await self.call("Page.navigate", url=url)).get("errorText")
        if failed:
            raise PageError(f"{url}: {failed}")
        with anyio.fail_after(PATIENCE):
            await self._loaded.wait()

    async def resize(self, width: int, height: int) -> None:
        """Give the tab another size, in CSS pixels; narrower than 600 is a phone."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    async def evaluate(self, script: str) -> Any:
        """Return the value of an expression; a promise is waited for."""
        done = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        failure = done.get("exceptionDetails")
        if failure is not None:
            raise PageError(failure.get("exception", {}).get("description") or failure["text"])
        return done["result"].get("value")

    async def until(self, condition: str) -> Any:
        """Wait until an expression is true, and return it; an exception in it counts as false."""
        return await self.evaluate(_UNTIL % (condition, PATIENCE * 1000))

    async def press(self, *keys: str, shift: bool = False) -> None:
        """Press keys one after the other, as on a keyboard."""
        for key in keys:
            code = _KEYS.get(key) or ord(key.upper())
            text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
            event = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
            await self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **event)
            await self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    async def write(self, text: str) -> None:
        await self.call("Input.insertText", text=text)


@asynccontextmanager
async def running(browser: Browser) -> AsyncIterator[Chromium]:
    """Start a browser with a new profile; it has ended when the block is left."""
    environment = os.environ | browser.environment | {"LC_ALL": "C.UTF-8", "TZ": "UTC"}
    with tempfile.TemporaryDirectory(prefix="neuron-scheduler-chromium-", ignore_cleanup_errors=True) as profile:
        launcher = [sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid())]
        command = [*launcher, str(browser.program), *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        async with await anyio.open_process(command, env=environment, stdout=None, cwd=Path(profile)) as process:
            try:
                async with (
                    aiohttp.ClientSession() as client,
                    client.ws_connect(await _address(process), max_msg_size=0) as socket,
                    anyio.create_task_group() as tasks,
                ):
                    chromium = Chromium(socket)
                    tasks.start_soon(chromium.listen)
                    tasks.start_soon(_drain, process)
                    yield chromium
                    tasks.cancel_scope.cancel()
            finally:
                with anyio.CancelScope(shield=True):
                    if process.returncode is None:
                        process.kill()
                    await process.wait()


async def _address(process: anyio.abc.Process) -> str:
    """Return the websocket's address, which the browser prints."""
    assert process.stderr is not None
    printed = ""
    with anyio.fail_after(PATIENCE):
        async for chunk in process.stderr:
            printed += chunk.decode(errors="replace")
            match = _LISTENING.search(printed)
            if match and printed.find("\n", match.end()) >= 0:
                return match[1]
    raise PageError(f"Chromium ended with {await process.wait()}:\n{printed}")


async def _drain(process: anyio.abc.Process) -> None:
    """Read what the browser prints, so that it never blocks on a full pipe."""
    assert process.stderr is not None
    async for _ in process.stderr:
        pass

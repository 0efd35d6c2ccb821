"""When the page asks, with timers that a test runs by hand; and what it says when nobody answers."""

from collections.abc import AsyncIterator

import anyio
import pytest

from tests.browser.chromium import Chromium, Tab
from tests.page import examples
from tests.page.fake_scheduler import FakeScheduler
from tests.support.patience import PATIENCE

STATUS = "document.querySelector('#status').textContent"
BY_HAND = """
window.timers = [];
window.setTimeout = (run, delay) => { window.timers.push({run, delay}); return window.timers.length; };
window.clearTimeout = (number) => { if (number) window.timers[number - 1] = {}; };
window.due = () => window.timers.filter((timer) => timer.run);
window.ring = () => { const [timer] = window.due(); window.timers = []; timer.run(); };
window.away = false;
Object.defineProperty(Document.prototype, "hidden", {get: () => window.away});
performance.now = () => 0;
AbortSignal.timeout = () => undefined;
"""
DELAYS = "window.due().map((timer) => timer.delay)"
WAITS = "window.due().length > 0"


@pytest.fixture
async def tab(browser: Chromium, scheduler: FakeScheduler) -> AsyncIterator[Tab]:
    """Open the page with timers that do nothing by themselves; it has asked once."""
    scheduler.fleet = examples.fleet()
    async with browser.tab() as tab:
        await tab.call("Page.addScriptToEvaluateOnNewDocument", source=BY_HAND)
        await tab.open(scheduler.url)
        await tab.until(f"{WAITS} && {STATUS} === 'Up to date.'")
        yield tab


async def again(tab: Tab) -> list[int]:
    """Let the next question be asked, and return the delays of what is planned after its answer."""
    await tab.evaluate("window.ring()")
    await tab.until(WAITS)
    return list(await tab.evaluate(DELAYS))


async def test_every_two_seconds_and_once_a_minute_out_of_sight(tab: Tab, scheduler: FakeScheduler) -> None:
    """A tab that is not seen asks once a minute, and at once when it is seen again."""
    assert await tab.evaluate(DELAYS) == [2000]
    assert await again(tab) == [2000]
    await tab.evaluate("window.away = true; document.dispatchEvent(new Event('visibilitychange'))")
    assert await tab.evaluate(DELAYS) == [60000]
    assert await again(tab) == [60000]
    asked = len(scheduler.asked)
    await tab.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    await tab.until(f"{DELAYS}[0] === 2000")
    assert len(scheduler.asked) == asked + 3


async def test_a_lost_scheduler(tab: Tab, scheduler: FakeScheduler) -> None:
    """The page says so, keeps what it has, asks less and less often, and goes on when there is an answer."""
    await scheduler.stop()
    assert await again(tab) == [4000]
    said = await tab.evaluate(STATUS)
    assert said.startswith("Lost the scheduler (no answer); trying again. What you see is from ")
    assert await tab.evaluate("document.body.className") == "stale"
    assert await tab.evaluate("document.querySelectorAll('.machine').length") == 4
    assert [await again(tab) for _ in range(4)] == [[8000], [16000], [30000], [30000]]
    assert await tab.evaluate(STATUS) == said
    await scheduler.start()
    assert await again(tab) == [2000]
    assert await tab.evaluate(STATUS) == "Up to date."
    assert await tab.evaluate("document.body.className") == ""


async def test_an_answer_that_is_none(tab: Tab, scheduler: FakeScheduler) -> None:
    """A scheduler that is not ready or of another version, or a proxy's page, is no fleet: the page says so."""
    scheduler.broken = (503, b"the informers have not synced")
    await again(tab)
    said = "The scheduler cannot answer (the informers have not synced); trying again."
    assert (await tab.evaluate(STATUS)).startswith(said)
    scheduler.broken = (200, b"<html>Log in to the proxy</html>")
    await again(tab)
    assert "(the answer is not from a scheduler)" in await tab.evaluate(STATUS)
    scheduler.broken = (200, b'{"kind": "Status"}')
    await again(tab)
    assert "(the answer is not from a scheduler)" in await tab.evaluate(STATUS)
    assert not [problem for problem in tab.complaints() if "503" not in problem]
    scheduler.broken = (200, b'{"machines": [{}], "types": [], "pods": [], "decisions": [], "notes": []}')
    await again(tab)
    assert "(its answer cannot be shown, perhaps because" in await tab.evaluate(STATUS)
    assert await tab.evaluate("document.querySelectorAll('.machine').length") == 4


async def test_a_token_is_forgotten_at_once(tab: Tab, scheduler: FakeScheduler) -> None:
    """Its names go with it, also if the scheduler cannot be asked any more."""
    await tab.evaluate("document.querySelector('#token').value = 'the-right-token'")
    await tab.evaluate("document.querySelector('#token-form').requestSubmit()")
    await tab.until("document.querySelector('#names').textContent !== 'hidden'")
    await tab.evaluate("document.querySelectorAll('.machine')[2].open = true")
    await tab.until("document.querySelector('.machine[open]').innerText.includes('ml/train-0')")
    await scheduler.stop()
    await tab.evaluate("document.querySelector('#forget').click()")
    assert "train-0" not in await tab.evaluate("document.documentElement.outerHTML")
    await scheduler.start()


async def test_an_answer_for_a_forgotten_token(tab: Tab, scheduler: FakeScheduler) -> None:
    """Names that came before the token was forgotten are not shown when the last of the three answers arrives."""
    scheduler.waiting = examples.waiting()
    scheduler.held = "/v1/decisions"
    await tab.evaluate("document.querySelector('#token').value = 'the-right-token'")
    await tab.evaluate("document.querySelector('#token-form').requestSubmit()")
    with anyio.fail_after(PATIENCE):
        while len(scheduler.asked) < 5:  # noqa: ASYNC110 - the browser sets no event
            await anyio.sleep(0.01)
    await tab.evaluate("document.querySelector('#forget').click()")
    await tab.evaluate(
        "window.named = false; new MutationObserver(() => {"
        " window.named ||= document.body.textContent.includes('train-1') })"
        ".observe(document.body, {childList: true, subtree: true})"
    )
    scheduler.answering.set()
    await tab.until(f"{WAITS} && document.querySelectorAll('#waiting li').length === 1")
    assert await tab.evaluate("[window.named, document.querySelector('#names').textContent]") == [False, "hidden"]


async def test_pause(tab: Tab, scheduler: FakeScheduler) -> None:
    """A paused page plans no question; it asks at once when it goes on."""
    await tab.evaluate("document.querySelector('#pause').click()")
    assert await tab.evaluate(DELAYS) == []
    assert await tab.evaluate(STATUS) == "Updates are paused."
    asked = len(scheduler.asked)
    await tab.evaluate("document.querySelector('#pause').click()")
    await tab.until(f"{WAITS} && {STATUS} === 'Up to date.'")
    assert len(scheduler.asked) == asked + 3

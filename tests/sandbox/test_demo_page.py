"""The page of the demo, in a real Chromium: the real scheduler, the real answers, a fleet that changes."""

import re
from pathlib import Path

from sandbox.demo import installation
from tests.browser.chromium import Chromium, Tab
from tests.support.demo import ROOT, Served, served

EXAMPLES = ROOT / "manifests" / "examples"
UP_TO_DATE = "document.querySelector('#status').textContent === 'Up to date.'"
DECIDED = "document.querySelector('#decisions').innerText"
MARKS = (
    "[...document.querySelectorAll('.machine')].filter((one) => one.innerText.startsWith('trn1-a'))"
    ".flatMap((one) => [...one.querySelectorAll('svg text')].map((text) => text.textContent)).join('')"
)


async def test_the_page_of_the_demo(browser: Chromium, tmp_path: Path) -> None:
    """It shows the fleet, why a pod waits and what to change; a new pod appears; another scheduler takes over."""
    async with served(tmp_path) as demo, browser.tab() as tab:
        await tab.open(page_of(demo))
        await tab.until(UP_TO_DATE)
        await tab.until("document.querySelectorAll('.machine').length === 12")
        assert "seven" not in await tab.evaluate("document.body.innerText")
        await enter_token(tab)
        await tab.until("document.querySelector('#waiting summary').innerText.includes('default/seven')")
        await tab.evaluate("document.querySelector('#waiting summary').click()")
        await tab.until("document.querySelector('#waiting .why h3')")
        assert await tab.evaluate(MARKS) == ""
        await demo.kubectl("apply", "-f", str(EXAMPLES / "trn1.yaml"))
        assert len(set(await tab.until(f"{MARKS}.length === 4 && {MARKS}"))) == 1
        await tab.until(f"{DECIDED}.includes('default/four-devices-on-trn1')")
        await demo.kubectl("cordon", "trn2-a")
        await tab.until("document.querySelector('.machine').innerText.includes('cordoned')")
        assert tab.complaints() == []
        await demo.kubectl("delete", "pod", "--namespace=kube-system", "-l", "app.kubernetes.io/name=neuron-scheduler")
        await demo.kubectl("apply", "-f", str(EXAMPLES / "inf2.yaml"))
        await tab.until(f"{DECIDED}.includes('three-devices-on-inf2') && !{DECIDED}.includes('four-devices-on-trn1')")
        await tab.until(UP_TO_DATE)


def page_of(demo: Served) -> str:
    """Return the page's address that the demo has printed."""
    (address,) = re.findall(r"in your browser: (\S+)", demo.printed)
    return str(address)


async def enter_token(tab: Tab) -> None:
    """Enter the demo's token, and wait until it was accepted."""
    await tab.evaluate("document.querySelector('#access').open = true; document.querySelector('#token').focus()")
    await tab.write(installation.TOKEN)
    await tab.press("Enter")
    await tab.until("document.querySelector('#names').textContent !== 'hidden'")

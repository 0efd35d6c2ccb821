"""The page of a demo that serves, as a person finds it."""

import re

from sandbox.demo import installation
from tests.browser.chromium import Tab
from tests.support.demo import Served


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

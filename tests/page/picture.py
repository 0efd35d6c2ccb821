"""
Take the pictures of the page for the README from a real run: `python -m tests.page.picture FOLDER`.

Runs the demo, gives its scheduler pods, and looks at its page in Chromium as a person would: light, dark, and on a
phone.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio

from neuron_scheduler.sandbox.demo.workload import PodPlan
from tests.browser.chromium import Tab, running
from tests.browser.install import require
from tests.browser.small_png import small
from tests.support.demo import served
from tests.support.demo_page import enter_token, page_of
from tests.support.kubectl import Kubectl

PODS: Final = (
    PodPlan(name="llama-train-0", devices=8, on="trn1.32xlarge"),
    PodPlan(name="embed-0", devices=4, on="trn1.32xlarge"),
    PodPlan(name="notebook-ada", devices=1, on="trn1.32xlarge"),
    PodPlan(name="serve-0", devices=4, on="trn2.48xlarge"),
    PodPlan(name="serve-1", devices=4, on="trn2.48xlarge"),
    PodPlan(name="eval-0", devices=1, on="trn2.48xlarge"),
    PodPlan(name="notebook-ben", cores=2, on="trn2.48xlarge"),
    PodPlan(name="speech-0", devices=5, on="inf2.48xlarge"),
    PodPlan(name="speech-1", devices=3, on="inf2.48xlarge"),
    PodPlan(name="search-0", cores=3, on="inf2.24xlarge"),
    PodPlan(name="search-1", devices=2, on="inf2.24xlarge"),
    PodPlan(name="vision-0", cores=9, on="inf1.6xlarge"),
)
WAITS: Final = "llama-train-1"
END: Final = "Math.ceil(document.querySelectorAll('#decisions li')[5].getBoundingClientRect().bottom)"
PHONE: Final = 500  # CSS pixels
LOOKS: Final = {"page": (1200, 900, "light"), "page-dark": (1200, 900, "dark"), "page-phone": (390, 844, "light")}


async def main(folder: Path) -> None:
    """Run the demo, and write one picture for each look."""
    with TemporaryDirectory() as home:
        async with served(Path(home)) as demo, running(require()) as chromium:
            await _populate(demo.kubectl)
            for name, (width, height, scheme) in LOOKS.items():
                async with chromium.tab(width=width, height=height, media={"prefers-color-scheme": scheme}) as tab:
                    await tab.open(page_of(demo))
                    await _look(tab, width)
                    (folder / f"{name}.png").write_bytes(small(await tab.picture()))
                    sys.stdout.write(f"Written: {folder / name}.png\n")


async def _populate(kubectl: Kubectl) -> None:
    for plan in PODS:
        await kubectl("apply", "-f", "-", stdin=plan.manifest())
        await kubectl("wait", "--for=condition=PodScheduled", f"pod/{plan.name}", "--timeout=60s")
    await kubectl("cordon", "trn3-a")
    await kubectl("apply", "-f", "-", stdin=PodPlan(name=WAITS, devices=8, on="trn2.48xlarge").manifest())
    await kubectl("wait", "--for=jsonpath={.status.conditions[0].reason}=Unschedulable", f"pod/{WAITS}")


async def _look(tab: Tab, width: int) -> None:
    """Open what a reader would open: the explanation of the pod that waits, and one machine."""
    await enter_token(tab)
    await tab.evaluate("document.querySelector('#access').open = false")
    row = f"[...document.querySelectorAll('#waiting summary')].find((one) => one.innerText.includes('{WAITS}'))"
    await tab.until(row)
    await tab.evaluate(f"{row}.click()")
    await tab.until("document.querySelector('#waiting .why h3')")
    machine = "[...document.querySelectorAll('.machine')].find((one) => one.innerText.startsWith('trn2-a'))"
    await tab.evaluate(f"{machine}.focus({{preventScroll: true}})")
    await tab.until("!document.querySelector('#details').hidden")
    await tab.evaluate("window.scrollTo(0, 0)")
    if width > PHONE:  # as far as the machines and the last decisions
        await tab.resize(width, await tab.evaluate(END))
    else:  # what one sees below the types and the pods that wait
        await tab.evaluate(f"{machine}.scrollIntoView({{block: 'nearest'}})")


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))

"""The page in a real Chromium: it shows what the scheduler answers, by itself, and to everybody."""

from collections.abc import AsyncIterator

import attrs
import pytest

from neuron_scheduler.explain.answers import (
    Fleet,
    Holder,
    PodSummary,
    RecentDecision,
    RecentDecisions,
    TypeSummary,
    Waiting,
    WaitingEntry,
)
from tests.browser.chromium import Chromium, Tab
from tests.page import examples
from tests.page.fake_scheduler import NO_NAMES, TOKEN, FakeScheduler

UP_TO_DATE = "document.querySelector('#status').textContent === 'Up to date.'"
TEXT = "document.body.innerText"
FOCUS = (
    """((focused) => focused.id || focused.getAttribute("aria-label") || focused.innerText)(document.activeElement)"""
)
MACHINES = "[...document.querySelectorAll('.machine')].map((machine) => machine.querySelector('.name').textContent)"
OPENED = "document.querySelector('.machine[open]').innerText"
NAMES = ("train-0", "train-1", "infer-0", "half-a-device", "next-0", "lost")


@pytest.fixture
async def tab(browser: Chromium, scheduler: FakeScheduler) -> AsyncIterator[Tab]:
    """Open the page of a small fleet; no test may leave a line on the console or ask another server."""
    scheduler.fleet, scheduler.waiting = examples.fleet(), examples.waiting()
    scheduler.decisions = examples.decisions()
    scheduler.explanations["ml/train-1"] = examples.explanation()
    async with browser.tab() as tab:
        await tab.open(scheduler.url)
        await tab.until(UP_TO_DATE)
        yield tab
        assert tab.complaints() == []
        assert [url for url, _ in tab.requests if not url.startswith(f"http://127.0.0.1:{scheduler.port}/")] == []


async def log_in(tab: Tab, token: str = TOKEN) -> None:
    """Enter a token as a person does."""
    await tab.evaluate("document.querySelector('#access').open = true; document.querySelector('#token').focus()")
    await tab.write(token)
    await tab.press("Enter")


async def with_names(tab: Tab) -> None:
    """Enter the right token, and wait until the names are there."""
    await log_in(tab)
    await tab.until(
        "document.querySelector('#waiting summary') && document.querySelector('#names').textContent !== 'hidden'"
    )


async def test_the_fleet(tab: Tab) -> None:
    """Each machine has its marks in the order of the answer, and each kind of core is told apart without colour."""
    await with_names(tab)
    assert await tab.evaluate(MACHINES) == ["inf2-a", "inf1-a", "trn1-a", "inf2-b"]
    marks = await tab.evaluate(
        "[...document.querySelectorAll('.machine')].map((machine) =>"
        " [...machine.querySelectorAll('svg text')].map((mark) => mark.textContent))"
    )
    (cordoned, trouble, torus, line) = ["".join(sorted(texts)) for texts in marks]
    assert cordoned == "\u2013" * 12
    assert trouble == "!???"
    assert torus == torus[0] * 12, "a letter in each held device, none in the four free ones"
    assert sorted(line.count(letter) for letter in set(line)) == [1, 1, 3], "one kept, a half, three whole devices"
    assert not set(torus) & set(line)
    labels = await tab.evaluate(
        "[...document.querySelectorAll('.machine')].map((one) => one.firstChild.getAttribute('aria-label'))"
    )
    assert labels == [
        "inf2-a; inf2.48xlarge; 0 of 12 devices free; cordoned",
        "inf1-a; inf1.6xlarge; 0 of 4 devices free; unknown holder; double-booked",
        "trn1-a; trn1.32xlarge; 4 of 16 devices free, blocks of 4",
        "inf2-b; inf2.24xlarge; 1 of 6 devices free, blocks of 1; set aside; space kept",
    ]
    shapes = await tab.evaluate(
        "[...document.querySelectorAll('.machine .link')].map((link) => link.getAttribute('d'))"
    )
    assert [shape.count("M") for shape in shapes] == [12, 3, 24, 5], "a closed ring, a line, a grid, a line"
    rows = await tab.evaluate(
        "[...document.querySelectorAll('#types tbody tr')].map((row) => row.innerText.split(/\\s+/))"
    )
    assert rows[3][:7] == ["trn1.32xlarge", "1", "16", "4", "12", "0", "4"]


async def test_what_waits_and_why(tab: Tab) -> None:
    """A pod has its cause and message; opened, it has every part of the explanation, which an update refreshes."""
    await with_names(tab)
    row = await tab.evaluate("document.querySelector('#waiting summary').innerText")
    for words in ("ml/train-1", "8 Neuron devices · group train", "capacity", examples.MESSAGE):
        assert words in row
    await tab.evaluate("document.querySelector('#waiting summary').click()")
    await tab.until("document.querySelector('#waiting .why h3')")
    why = await tab.evaluate("document.querySelector('#waiting .why').innerText")
    for words in (
        "Ask for 4 devices.",
        "kubectl edit pod train-1",
        "ml/train-0; 12 Neuron devices; priority 5;",
        "budget train, which does not allow it now",
        "1 node (trn1-a), trn1.32xlarge: Insufficient neuron",
        "4 are free, 8 needed",
        "3 nodes (inf2-a, inf1-a and 1 more): didn't match Pod's node affinity/selector",
        "Space is kept for a/b.",
        "Budgets could not be read.",
        "Asked the autoscaler for 1 trn1.32xlarge.",
    ):
        assert words in why
    decided = await tab.evaluate("document.querySelector('#decisions').innerText")
    assert decided.index("ml/train-1") < decided.index("ml/train-0")
    assert "Successfully assigned it" in decided


async def test_without_a_token_there_are_no_names(tab: Tab, scheduler: FakeScheduler) -> None:
    """The fleet is shown, but no pod's name, in no attribute; a token brings them, and is kept nowhere."""
    everything = "document.documentElement.outerHTML"
    assert await tab.evaluate(MACHINES)
    await tab.evaluate("document.querySelectorAll('.machine')[2].open = true")
    await tab.until(f"{OPENED}.includes('a pod: devices 0-11')")
    assert not [name for name in NAMES if name in await tab.evaluate(everything)]
    assert (await tab.evaluate(TEXT)).count(NO_NAMES) == 1
    assert not [fields for _, fields in tab.requests if "Authorization" in fields]
    await with_names(tab)
    await tab.until(f"{OPENED}.includes('ml/train-0: devices 0-11')")
    assert TOKEN not in await tab.evaluate(everything)
    assert not [url for url, _ in tab.requests if TOKEN in url]
    kept = await tab.evaluate("[localStorage.length, sessionStorage.length, location.href]")
    assert kept == [0, 0, scheduler.url]
    assert (await tab.call("Network.getCookies"))["cookies"] == []
    await tab.evaluate("document.querySelector('#forget').click()")
    await tab.until("document.querySelector('#names').textContent === 'hidden'")
    assert not [name for name in NAMES if name in await tab.evaluate(everything)]


async def test_hostile_names_are_text(tab: Tab, scheduler: FakeScheduler) -> None:
    """HTML stays text, and what turns or hides text is made visible, in every place that shows a name."""
    evil = "<img src=x onerror=alert(1)>\u202egpj.exe\x1b[31m" + "long" * 60
    seen = evil.replace("\u202e", "\\u202e").replace("\x1b", "\\u001b")
    pod = PodSummary(evil, evil, asks=evil, group=evil)
    machine = attrs.evolve(
        examples.torus(evil, holders=(Holder(evil, evil, ((0, 1),)),), cores="hh" + "f" * 30),
        instance_type=evil, zone=evil, withheld=evil, ultraserver=evil,
    )  # fmt: skip
    scheduler.fleet = Fleet((machine,), (TypeSummary(evil, 1, 16, 15, 1, 0, 8),), (evil,))
    scheduler.waiting = Waiting((WaitingEntry(pod, evil, evil),), 1)
    scheduler.decisions = RecentDecisions((RecentDecision(1.0, pod, evil, message=evil),))
    explanation = examples.explanation()
    changes = tuple(
        attrs.evolve(
            change, sentence=evil, command=evil, pods=tuple(attrs.evolve(leaving, name=evil) for leaving in change.pods)
        )
        for change in explanation.changes
    )
    groups = tuple(attrs.evolve(group, names=(evil,), reason=evil, arithmetic=evil) for group in explanation.groups)
    scheduler.explanations[f"{evil}/{evil}"] = attrs.evolve(explanation, changes=changes, groups=groups, notes=(evil,))
    await with_names(tab)
    await tab.until("document.querySelector('#types th[scope=row]').textContent.includes('img')")
    await tab.until("document.querySelector('#waiting summary').innerText.includes('img')")
    await tab.evaluate("document.querySelector('#waiting summary').click()")
    await tab.until("document.querySelector('#waiting .why h3')")
    await tab.evaluate("document.querySelector('.machine').open = true")
    await tab.until(f"{OPENED}.includes('img')")
    await tab.until("document.querySelector('#decisions').innerText.includes('img')")
    text = await tab.evaluate("document.body.textContent")
    assert text.count(seen) > 20
    assert evil not in text
    assert "\u202e" not in text
    assert await tab.evaluate("document.querySelectorAll('img, script:not([src])').length") == 0
    for width in (320, 1280):
        await tab.resize(width, 800)
        assert await tab.evaluate("document.documentElement.scrollWidth") <= width


async def test_with_the_keyboard_alone(tab: Tab) -> None:
    """Every control is reached in the order of the page, and a pod and a machine can be opened."""
    stops = []
    for _ in range(4):
        await tab.press("Tab")
        stops.append(await tab.evaluate(FOCUS))
    assert stops == ["Skip to the fleet", "pause", "Names: hidden", "filter-name"]
    await tab.press("Tab", shift=True)
    await tab.press("Enter", "Tab")
    assert await tab.evaluate(FOCUS) == "token"
    await tab.write(TOKEN)
    await tab.press("Tab")
    assert await tab.evaluate(FOCUS) == "namespace"
    await tab.press("Tab", "Enter")
    await tab.until("document.querySelector('#waiting summary')")
    await tab.press("Tab", "Tab", "Enter")
    await tab.until("document.querySelector('#waiting .why h3')")
    assert "Ask for 4 devices." in await tab.evaluate(TEXT)
    await tab.press("Tab", *("Tab",) * 4)
    assert await tab.evaluate(FOCUS) == "inf2-a; inf2.48xlarge; 0 of 12 devices free; cordoned"
    await tab.press("Tab", "Enter")
    assert "double-booked" in await tab.evaluate(OPENED)


@pytest.mark.parametrize("width", [320, 800])
async def test_narrow(tab: Tab, width: int) -> None:
    """On a phone nothing has to be scrolled sideways, also with everything open."""
    await with_names(tab)
    await tab.resize(width, 700)
    await tab.evaluate("document.querySelector('#waiting summary').click()")
    await tab.until("document.querySelector('#waiting .why h3')")
    await tab.evaluate("document.querySelectorAll('.machine').forEach((one) => (one.open = true))")
    assert await tab.evaluate("document.documentElement.scrollWidth") <= width
    boxes = await tab.evaluate(
        "[...document.querySelectorAll('.machine, button, input, select')].map((one) => one.getBoundingClientRect())"
        ".filter((box) => box.width > 0).map((box) => [box.left, box.right])"
    )
    assert [box for box in boxes if box[0] < 0 or box[1] > width] == []


async def test_many_machines(tab: Tab, scheduler: FakeScheduler) -> None:
    """The page holds a part of them, the worst first; the filter finds the others, and more are a button away."""
    machines = tuple(attrs.evolve(examples.torus(f"node-{number:03}"), withheld="cordoned") for number in range(500))
    scheduler.fleet = Fleet(machines, ())
    await tab.until("document.querySelector('#fleet-count').innerText === '500'")
    assert await tab.evaluate("document.querySelectorAll('*').length") < 1500
    await tab.evaluate("document.querySelector('#more-machines').focus()")
    await tab.press("Enter")
    assert await tab.evaluate(f"{MACHINES}.length") == 48
    assert (await tab.evaluate(FOCUS)).startswith("node-024")
    await tab.evaluate("document.querySelector('#filter-name').focus()")
    await tab.write("NODE-4")
    assert await tab.evaluate("document.querySelector('#fleet-count').innerText") == "100 of 500"

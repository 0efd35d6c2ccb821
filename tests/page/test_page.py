"""The page in a real Chromium: it shows what the scheduler answers, by itself, and to everybody."""

import json
from collections.abc import AsyncIterator

import attrs
import pytest

from neuron_scheduler.explain.answers import (
    ChangeKind,
    Fleet,
    Holder,
    PodSummary,
    RecentDecision,
    RecentDecisions,
    SuggestedChange,
    TypeSummary,
    Waiting,
    WaitingEntry,
)
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from neuron_scheduler.scheduling.plugins.cause import Cause
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
LACK = "import('./page/rows.js').then((rows) => rows.lack(%s))"
INSUFFICIENT = "Insufficient aws.amazon.com/neuron"
MANY = ((INSUFFICIENT, 1), ("node(s) didn't match Pod's node affinity/selector", 3))
FIGURES = "Capacity: 4 Neuron devices free on 1 node."
EVICTS_NONE = "preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
UNKNOWN = "Unknown ids: trn1-a is blocked by a/b (schedulerName c)."


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
        "trn1-a; trn1.32xlarge; 4 of 16 devices free",
        "inf2-b; inf2.24xlarge; 1 of 6 devices free; set aside; reserved",
    ]
    shapes = await tab.evaluate(
        "[...document.querySelectorAll('.machine .link')].map((link) => link.getAttribute('d'))"
    )
    assert [shape.count("M") for shape in shapes] == [12, 3, 24, 5], "a closed ring, a line, a grid, a line"
    rows = await tab.evaluate(
        "[...document.querySelectorAll('#types tbody tr')].map((row) => row.innerText.split(/\\s+/))"
    )
    assert rows[3][:7] == ["trn1.32xlarge", "1", "16", "4", "4", "12", "0"]


async def test_what_waits_and_why(tab: Tab) -> None:
    """A pod has its cause and the figures; opened, it has the counts and every part of the explanation."""
    await with_names(tab)
    row = await tab.evaluate("document.querySelector('#waiting summary').innerText")
    lacks = "Capacity: 4 Neuron devices free on 1 node, pod needs 8."
    assert row.split("\n")[:3] == ["ml/train-1", lacks, "8 Neuron devices, group train"]
    await tab.evaluate("document.querySelector('#waiting summary').click()")
    await tab.until("document.querySelector('#waiting .why h3')")
    why = await tab.evaluate("document.querySelector('#waiting .why').innerText")
    for words in (
        examples.MESSAGE,
        "Ask for 4 devices.",
        "kubectl edit pod train-1",
        "ml/train-0; 12 Neuron devices; priority 5;",
        "budget train does not allow it now",
        "1 node trn1.32xlarge: Insufficient neuron\n4 are free, 8 needed\ntrn1-a",
        "3 nodes: didn't match Pod's node affinity/selector\ninf2-a, inf1-a and 1 more\nReserved for a/b.",
        "Budgets could not be read.",
        "Asked the autoscaler for 1 trn1.32xlarge.",
    ):
        assert words in why
    decided = await tab.evaluate("document.querySelector('#decisions').innerText")
    assert decided.index("ml/train-1") < decided.index("ml/train-0")
    assert "Assigned: trn1-a (devices 0-11)" in decided


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
    for _ in range(8):
        await tab.press("Tab")
        stops.append(await tab.evaluate(FOCUS))
    links = ["types-there", "Pending 1", "Machines 4", "Decisions"]
    assert stops == ["Skip to the fleet", "pause", "Names: hidden", *links, "filter-name"]
    await tab.press(*("Tab",) * 5, shift=True)
    await tab.press("Enter", "Tab")
    assert await tab.evaluate(FOCUS) == "token"
    await tab.write(TOKEN)
    await tab.press("Tab")
    assert await tab.evaluate(FOCUS) == "namespace"
    await tab.press("Tab", "Enter")
    await tab.until("document.querySelector('#waiting summary')")
    await tab.press(*("Tab",) * 6, "Enter")
    await tab.until("document.querySelector('#waiting .why h3')")
    assert "Ask for 4 devices." in await tab.evaluate(TEXT)
    await tab.press("Tab", *("Tab",) * 4)
    assert await tab.evaluate(FOCUS) == "inf2-a; inf2.48xlarge; 0 of 12 devices free; cordoned"
    await tab.press("Tab", "Enter")
    assert "double-booked" in await tab.evaluate(OPENED)


@pytest.mark.parametrize("width", [320, 800])
async def test_narrow(tab: Tab, width: int) -> None:
    """On a phone nothing has to be scrolled sideways, also with everything open, and all can be hit with a finger."""
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
    heights = await tab.evaluate(
        "[...document.querySelectorAll('nav a, summary, button, input, select')]"
        ".map((one) => one.getBoundingClientRect().height).filter((height) => height > 0)"
    )
    assert min(heights) >= 24


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


async def test_a_fleet_of_eks(tab: Tab, scheduler: FakeScheduler) -> None:
    """The end that all nodes' names share is said once; commands, and an opened machine, have the names in full."""
    ending = ".us-west-2.compute.internal"
    machines = tuple(examples.torus(f"ip-10-0-12-{number}{ending}") for number in range(30))
    where = machines[7].node_name
    placed = RecentDecision(5.0, examples.TRAIN, where, message=f"2 of 30 nodes fit; it gets {where} (device 0).")
    scheduler.fleet, scheduler.decisions = Fleet(machines, ()), RecentDecisions((placed,))
    change = SuggestedChange(ChangeKind.UNCORDON, f"Lift the cordon of {where}.", f"kubectl uncordon {where}")
    scheduler.explanations["ml/train-1"] = attrs.evolve(examples.explanation(), changes=(change,))
    await with_names(tab)
    await tab.until("document.querySelectorAll('.machine').length === 24")
    assert (await tab.evaluate(TEXT)).count(ending) == 1
    assert (await tab.evaluate(MACHINES))[7] == "ip-10-0-12-7"
    assert "Assigned: ip-10-0-12-7 (device 0)" in await tab.evaluate(TEXT)
    await tab.evaluate("document.querySelector('#waiting summary').click()")
    await tab.until("document.querySelector('#waiting .why h3')")
    why = await tab.evaluate("document.querySelector('#waiting .why').innerText")
    assert "Lift the cordon of ip-10-0-12-7." in why
    assert f"kubectl uncordon {where}" in why
    await tab.evaluate("document.querySelectorAll('.machine')[7].open = true")
    assert where in await tab.evaluate(OPENED)


async def test_members_and_a_controllers_pods_are_one_row(tab: Tab, scheduler: FakeScheduler) -> None:
    """Opened, the row has the explanation and each member, which can be opened, too; one that differs says how."""
    members = [attrs.evolve(examples.TRAIN, name=f"train-{number}") for number in range(1, 10)]
    of_web = [PodSummary("ml", f"web-{end}", created=1.0, asks="1 Neuron core", owner="ReplicaSet web") for end in "ab"]
    text = "Group ml/train needs room for 9 pods at once; 6 fit. With these placed, for the next one: "
    lines = [WaitingEntry(pod, "capacity", f"{text}{examples.MESSAGE}") for pod in members]
    lines[8] = WaitingEntry(members[8], "group", "Waiting for group ml/train.")
    scheduler.waiting = Waiting((*lines, *(WaitingEntry(pod, "untried") for pod in of_web)), 11)
    scheduler.decisions = RecentDecisions(
        tuple(RecentDecision(1.0, line.pod, cause=line.cause, message=line.message) for line in lines[:8])
    )
    await with_names(tab)
    await tab.until("document.querySelectorAll('#waiting > li').length === 2")
    rows = "[...document.querySelectorAll('%s')].map((row) => row.innerText.split('\\n'))"
    lacks = f"Capacity: {text.partition(' With')[0]} 4 Neuron devices free on 1 node, pod needs 8."
    shown = [row[:-1] for row in await tab.evaluate(rows % "#waiting > li")]
    assert shown == [["ml/train", lacks, "9 \u00d7 8 Neuron devices"], ["ml/web", "Untried", "2 \u00d7 1 Neuron core"]]
    assert [row[:3] for row in await tab.evaluate(rows % "#decisions > li")] == [
        ["ml/train", lacks, "8 \u00d7 8 Neuron devices"]
    ]
    assert await tab.evaluate("document.querySelector('#waiting-count').innerText") == "11"
    assert await tab.evaluate("document.querySelectorAll('#waiting ol li').length") == 0, "they may be a thousand"
    await tab.evaluate("document.querySelector('#waiting summary').click()")
    await tab.until("document.querySelector('#waiting .why h3')")
    inner = [row[:-1] for row in await tab.evaluate(rows % "#waiting details[open] ol li")]
    differs = ["train-9", "Group: Waiting for group ml/train."]
    assert inner == [*([f"train-{number}"] for number in range(1, 9)), differs]
    await tab.evaluate("document.querySelector('#waiting ol summary').click()")
    await tab.until("document.querySelector('#waiting ol .why h3')")


async def test_pods_without_names_are_grouped(tab: Tab, scheduler: FakeScheduler) -> None:
    """Without names, pods that lack the same and ask for the same are one row with a sentence for the cause."""
    other = attrs.evolve(examples.TRAIN, asks="1 Neuron core")
    lines = (*[WaitingEntry(examples.TRAIN, "capacity", examples.MESSAGE)] * 8, WaitingEntry(other, "capacity"))
    scheduler.waiting = Waiting(lines, 9)
    await tab.until("document.querySelectorAll('#waiting > li').length === 2")
    lacks = "Capacity: Not enough Neuron devices or cores are free."
    rows = await tab.evaluate(
        "[...document.querySelectorAll('#waiting > li')].map((row) => row.innerText.split('\\n'))"
    )
    assert [row[:2] for row in rows] == [["8 pods, 8 Neuron devices each", lacks], ["1 pod, 1 Neuron core", lacks]]
    assert await tab.evaluate("document.querySelectorAll('#waiting summary').length") == 0


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (FitError(4, MANY, hint=FIGURES, preemption=EVICTS_NONE), "4 Neuron devices free on 1 node."),
        (FitError(4, MANY, preemption=EVICTS_NONE), f"1 {INSUFFICIENT}."),
        (FitError(4, MANY, preemption=EVICTS_NONE, blocked=UNKNOWN), "Trn1-a is blocked by a/b (schedulerName c)."),
        (FitError(4, MANY[1:]), "3 node(s) didn't match Pod's node affinity/selector."),
        (FitError(4, pod_reason='claim "data" not found'), 'Claim "data" not found.'),
        (FitError(4, MANY, hint=FIGURES, group="Group a/b.c: 2 fit. With these, for one:"),
         "Group a/b.c: 2 fit. 4 Neuron devices free on 1 node."),
        (FitError(0), "no nodes available to schedule pods"),
    ],
)  # fmt: skip
async def test_what_a_pod_lacks(tab: Tab, error: FitError, lacks: str) -> None:
    """Of the Event's message the figures are shown, or the reasons without the nodes that the pod does not mean."""
    assert await tab.evaluate(LACK % json.dumps({"cause": "capacity", "message": error.text})) == lacks


async def test_each_cause_has_words(tab: Tab) -> None:
    """Where there is no message, or no right to see it, a sentence stands for the cause."""
    words = [await tab.evaluate(LACK % json.dumps({"cause": cause, "message": ""})) for cause in Cause]
    assert [cause for cause, said in zip(Cause, words, strict=True) if not said] == [Cause.UNTRIED]


async def test_nothing_to_show(tab: Tab, scheduler: FakeScheduler) -> None:
    """A filter without a hit says so and can be undone; a fleet without machines says what to run."""
    said = "document.querySelector('#none-found').innerText"
    await tab.evaluate("document.querySelector('#filter-name').focus()")
    await tab.write("nosuch")
    await tab.until(f"{said} === 'No machine matches the filter.'")
    await tab.evaluate("document.querySelector('#show-all').click()")
    await tab.until("document.querySelectorAll('.machine').length === 4")
    assert not await tab.evaluate("document.querySelector('#none-found').checkVisibility()")
    scheduler.fleet, scheduler.waiting, scheduler.decisions = Fleet((), ()), Waiting(()), RecentDecisions(())
    await tab.until(f"{said}.includes('neuron-scheduler check')")
    text = await tab.evaluate(TEXT)
    for words in ("No pod is pending.", "No decisions since this replica started."):
        assert words in text
    assert "BY INSTANCE TYPE" not in text.upper()
    assert not await tab.evaluate("document.querySelector('#filter').checkVisibility()")

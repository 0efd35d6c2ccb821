"""Whatever becomes of a list or a watch, the informer ends up with what is there, and takes nothing for deleted."""

import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import anyio
import attrs
import pytest

from neuron_scheduler.kube.http import auth
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.pacing import Backoff
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.watch import informer
from neuron_scheduler.kube.watch.informer import Informer
from neuron_scheduler.model.pod import Pod
from tests.control_plane.objects import create_pod, pod_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ADMIN, ControlPlane
from tests.end_to_end.workload import PODS, clear
from tests.faults.answers import (
    CUT,
    SILENCE,
    End,
    Page,
    Refusal,
    after_lines,
    cut_in_line,
    status_object,
)
from tests.faults.calls import Call, Condition
from tests.faults.catalogue import FAULTS
from tests.faults.proxy import ALWAYS, Behaviour, Fault, instead, run_proxy
from tests.support.informers import informer_of
from tests.support.patience import PATIENCE

LABEL: Final = "example.com/step"
PAGE: Final = 3  # objects; the lists have several pages
STEPS: Final = 3
PAGE_TIMEOUT: Final = 10.0
FASTER: Final = 3.0  # a watch that is silent for 35 s is given up after a third of that


def _line(event: str, **item: object) -> bytes:
    return json.dumps({"type": event, "object": item}).encode() + b"\n"


def _error(status: int) -> bytes:
    return _line("ERROR", **status_object(status, reason="Expired" if status == 410 else "InternalError"))


WATCHES: Final[Mapping[str, Behaviour]] = {
    "closed-after-a-line": Behaviour(after_lines(1)),
    "cut-in-a-line": Behaviour(cut_in_line(2, end=End.RESET)),
    "silent-from-the-start": Behaviour(SILENCE),
    "silent-after-the-headers": Behaviour(after_lines(0, end=End.SILENT)),
    "silent-in-a-line": Behaviour(cut_in_line(2, end=End.SILENT)),
    "error-410": Behaviour(after_lines(1, _error(410))),
    "error-500": Behaviour(after_lines(0, _error(500))),
    "always-closed-at-once": Behaviour(after_lines(0), times=ALWAYS),
    "always-error-500": Behaviour(after_lines(0, _error(500)), times=ALWAYS),
    "401": instead(Refusal(401)),
    "403": instead(Refusal(403)),
    "410": instead(Refusal(410)),
    "429-retry-after": instead(Refusal(429, seconds=1)),
    "503": instead(Refusal(503)),
    "too-new": instead(Refusal(504, "Timeout: Too large resource version: 99, current: 1")),
    "page-502": instead(Page(502)),
    "cut": instead(CUT),
}
# The API server's own answer to a list never comes, or is cut.
LISTS: Final = {
    **{name: FAULTS[name] for name in ("403-before", "503-before", "page-502-before", "silence-after", "half-after")},
    "410-before": instead(Refusal(410)),
}


def of(agent: str, *, watch: bool = False, page: int = 0) -> Condition:
    """Return a condition: this informer watches, or lists this page of the pods, the first being 0."""

    def matches(call: Call) -> bool:
        return call.agent == agent and call.watches == watch and ("continue" in call.query) == bool(page)

    return matches


@attrs.define(eq=False)
class Follower:
    """
    An informer's handler that keeps what it is told, and counts it.

    Attributes:
        known: the label of each pod, by name.
        told: how often each pod was added or deleted, by name.
        wrong: what it was told that cannot be.
    """

    known: dict[str, str] = attrs.field(factory=dict)
    told: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    wrong: list[str] = attrs.field(factory=list)
    changed: anyio.Event = attrs.field(factory=anyio.Event)

    def on_added(self, new: Pod) -> None:
        """Keep a new pod."""
        self.told["added", new.name] += 1
        if new.name in self.known:
            self.wrong.append(f"{new.name} was added twice")
        self._keep(new)

    def on_updated(self, old: Pod, new: Pod) -> None:
        """Keep the new state, which is another one."""
        if self.known.get(old.name) != old.labels.get(LABEL, ""):
            self.wrong.append(f"{old.name} was updated from a state that was not known")
        self._keep(new)

    def on_deleted(self, old: Pod) -> None:
        """Forget a pod."""
        self.told["deleted", old.name] += 1
        if self.known.pop(old.name, None) is None:
            self.wrong.append(f"{old.name} was deleted and not known")
        self.changed.set()

    def on_malformed(self, malformed: Malformed) -> None:
        self.wrong.append(f"malformed: {malformed.reason}")

    def on_malformed_gone(self, malformed: Malformed) -> None:
        self.wrong.append(f"no longer malformed: {malformed.reason}")

    def _keep(self, pod: Pod) -> None:
        self.known[pod.name] = pod.labels.get(LABEL, "")
        self.changed.set()

    async def until(self, wanted: Mapping[str, str]) -> None:
        """Wait until it knows exactly these pods with these labels, or the patience is over."""
        with anyio.move_on_after(PATIENCE):
            while self.known != wanted:
                self.changed = anyio.Event()
                await self.changed.wait()


@attrs.define(eq=False)
class Followers:
    """
    All informers by name, each with a fault, and what they must know in the end.

    Attributes:
        gone: the pods that were deleted.
    """

    faults: dict[str, Fault] = attrs.field(factory=dict)
    everybody: dict[str, Follower] = attrs.field(factory=dict)
    wanted: dict[str, str] = attrs.field(factory=dict)
    gone: list[str] = attrs.field(factory=list)

    async def live(self, api: RestClient) -> None:
        """Change the cluster step by step, and let everybody see each step."""
        await self._seen()
        for step in range(STEPS):
            created, changed, deleted = f"new-{step}", f"pod-{2 * step}", f"pod-{2 * step + 1}"
            await create_pod(api, _pod(created))
            await api.patch(f"{PODS}/{changed}", {"metadata": {"labels": {LABEL: str(step)}}})
            await api.delete(f"{PODS}/{deleted}", gracePeriodSeconds=0)
            self.wanted |= {created: "", changed: str(step)}
            del self.wanted[deleted]
            self.gone.append(deleted)
            await self._seen()

    async def _seen(self) -> None:
        async with anyio.create_task_group() as tasks:
            for follower in self.everybody.values():
                tasks.start_soon(follower.until, self.wanted)


def _pod(name: str) -> dict[str, Any]:
    return pod_manifest(name, scheduler_name="nobody")


def _faults() -> Iterator[tuple[str, Fault]]:
    for name, behaviour in WATCHES.items():
        yield f"watch-{name}", Fault(of(f"watch-{name}", watch=True), behaviour)
    for page in range(2):
        for name, behaviour in LISTS.items():
            yield f"page-{page}-{name}", Fault(of(f"page-{page}-{name}", page=page), behaviour)


FAULTY: Final = [name for name, _ in _faults()]


@pytest.fixture(scope="module")
async def followers(fault_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Followers]:
    """Run all informers at once, with small pages and short limits, until all have seen the last step."""
    api = fault_plane.admin
    kubeconfig = fault_plane.kubeconfig(tmp_path_factory.mktemp("watches") / "kubeconfig", token=ADMIN.token)
    seen = Followers()
    for number in range(2 * STEPS):
        await create_pod(api, _pod(f"pod-{number}"))
        seen.wanted[f"pod-{number}"] = ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(informer, "PAGE", PAGE)
        patch.setattr(informer, "LARGEST_PAGE", PAGE)
        patch.setattr(informer, "PAGE_TIMEOUT", PAGE_TIMEOUT)
        async with AsyncExitStack() as stack:
            proxy = await stack.enter_async_context(run_proxy(fault_plane))
            connection = await auth.load(str(kubeconfig), proxy.url)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            for name, fault in _faults():
                client = await stack.enter_async_context(Client(connection=connection, user_agent=name))
                seen.faults[name], seen.everybody[name] = proxy.add(fault), Follower()
                tasks.start_soon(_informer(client, seen.everybody[name]).run)
            await seen.live(api)
            tasks.cancel_scope.cancel()
    yield seen
    await clear(api)


def _informer(client: Client, follower: Follower) -> Informer[Pod]:
    """Return an informer that gives up a silent watch sooner than usual, and tries again sooner."""
    return informer_of(
        client,
        follower,
        time_limit=lambda seconds: anyio.move_on_after(seconds / FASTER),
        backoff=Backoff(random.random, first=0.05, most=0.5),
    )


@pytest.mark.parametrize("name", FAULTY)
async def test_an_informer_whose_request_meets_a_fault(followers: Followers, name: str) -> None:
    """It knows all pods as they are; each was added once, and deleted only if it was."""
    follower = followers.everybody[name]
    assert followers.faults[name].taken.is_set(), "the fault was met"
    assert follower.known == followers.wanted
    assert follower.wrong == []
    assert {kind for kind in follower.told if follower.told[kind] > 1} == set()
    assert {pod for kind, pod in follower.told if kind == "deleted"} == set(followers.gone)

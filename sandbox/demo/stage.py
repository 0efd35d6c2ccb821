"""
Plays the demo's acts: creates pods, waits for their outcomes, checks them, and draws the fleet.

Follows the embedded server's store and never sleeps. Checks only what the API server knows: conditions, events,
nodeName and annotations.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
from rich.console import Console, Group
from rich.text import Text

from sandbox.apiserver.resources import EVENTS, PODS
from sandbox.apiserver.store import Object
from sandbox.demo import installation, occupancy, picture, workload
from sandbox.demo.picture import Legend, Outcome
from sandbox.demo.workload import ACTS, Act, DemoError, Placed, PodPlan, Waits, Want
from sandbox.server import ApiServer

_EXAMPLES: Final = (
    "get pods --all-namespaces -o wide",
    "neuron map",
    "logs --namespace kube-system deployment/my-scheduler",
    f"describe pod {workload.KEPT}",
    "apply -f manifests/examples/inf1.yaml",
    "delete -f manifests/examples/inf1.yaml",
)


@attrs.define(eq=False)
class Stage:
    """
    One run on one server.

    Attributes:
        patience: seconds for the outcomes of one act, the scheduler's start included.
        finished: whether the last act is over.
    """

    _server: ApiServer
    _console: Console = attrs.field(factory=lambda: picture.Screen(highlight=False))
    _legend: Legend = attrs.field(factory=Legend)
    _plans: dict[str, PodPlan] = attrs.field(factory=dict)
    _had: set[str] = attrs.field(factory=set)
    _outcomes: dict[str, Outcome] = attrs.field(factory=dict)
    patience: float = attrs.field(default=60.0, kw_only=True)
    finished: bool = attrs.field(default=False, init=False)

    async def play(self) -> None:
        """
        Play and draw all acts, then print a summary.

        Raises:
            DemoError: an outcome is not the expected one, or does not come.
        """
        for node in workload.nodes():
            self._server.create(node)
        self._console.print(f"\nAn API server at {self._server.url}, simulated nodes, the real scheduler.")
        for number, act in enumerate(ACTS, start=1):
            await self._play(number, act)
        self._console.print("", self._summary(), sep="\n")
        self.finished = True

    def export(self, path: str) -> None:
        """Write the last screen, fleet and outcomes, as SVG."""
        drawn = picture.fleet(occupancy.read(self._server.store), self._legend)
        rows = list(self._outcomes.values())
        pending = picture.outcomes([row for row in rows if not row.node], self._legend)
        picture.export(
            path, Group(drawn, Text(), picture.key(rows, self._legend), Text(), pending, Text(), self._summary())
        )
        self._console.print(f"Written: {path}")

    async def serve(self, kubeconfig: Path, page: str) -> None:
        """Make room, print the page's address and commands for kubectl, then draw the fleet when it changes."""
        await self._make_room()
        self._console.print(
            f"\nThe demo's pods are gone, except {workload.KEPT}, which is still pending."
            f"\nThe server and the scheduler keep running. The fleet in your browser: {page} (for the names of"
            f" pods, enter the token {installation.TOKEN} there).\nIn another terminal, in this folder:\n",
            soft_wrap=True,
        )
        variables = f'export KUBECONFIG={kubeconfig} PATH="$PWD/.venv/bin:$PATH"'
        for command in (variables, *(f"kubectl {example}" for example in _EXAMPLES)):
            self._console.print(f"  {command}", style="bold", soft_wrap=True)
        self._console.print(
            f"\nWithout the variable, each kubectl needs --server={self._server.url}. Pods need schedulerName:"
            f" {workload.SCHEDULER_NAME}.\nAll containers are simulated except the scheduler's, and"
            " no device is real. Only Deployments and Jobs have controllers; volumes, quotas, rights and policies are"
            " only stored. Ctrl-C ends everything.\n",
            soft_wrap=True,
        )
        drawn = None
        while True:
            now = occupancy.read(self._server.store)
            if drawn != (now.holdings, now.problems):
                self._draw(now)
                drawn = (now.holdings, now.problems)
            await self._server.store.changed(PODS.storage)

    async def _make_room(self) -> None:
        """Delete the story's pods and their Events."""
        with anyio.move_on_after(self.patience):  # an Event may come after its pod's Binding
            await self._until(lambda: self._outcomes.keys() <= {_subject(event) for event in self._events()})
        for name in [name for name in self._outcomes if name != workload.KEPT]:
            self._server.registry.delete(PODS, "default", name, {})
        await self._until(lambda: not occupancy.read(self._server.store).holdings)
        for event in self._events():
            if _subject(event) != workload.KEPT:
                self._server.store.remove(EVENTS.storage, "default", event["metadata"]["name"])

    async def _play(self, number: int, act: Act) -> None:
        self._console.print(picture.act(number, act.title, act.text))
        for node in workload.late_nodes() if act.joins else ():
            self._server.create(node)
        for name in act.deletes:
            self._server.registry.delete(PODS, "default", name, {})
        self._plans |= {plan.name: plan for plan in act.creates}
        for plan in act.creates:
            self._server.create(plan.manifest())
        with anyio.move_on_after(self.patience) as patience:
            await self._until(lambda: not any(self._pod(name) for name in act.deletes))
            await self._until(lambda: all(self._settled(name, want) for name, want in act.wants.items()))
        now = occupancy.read(self._server.store)
        problems = [*now.problems, *filter(None, [self._why_not(*each, now) for each in act.wants.items()])]
        self._had |= now.holdings.keys()
        for name in act.deletes:
            self._console.print(Text(f"deleted: {name}", style="dim"))
            self._outcomes.pop(name, None)
        shown = {name: self._outcome(name) for name in act.wants}
        self._outcomes |= shown
        self._console.print(picture.outcomes(list(shown.values()), self._legend), "")
        self._draw(now)
        if problems or patience.cancelled_caught:
            raise DemoError(f"in act {number}, {act.title!r}: {'; '.join(problems) or 'no outcome in time'}")

    def _draw(self, now: occupancy.Occupancy) -> None:
        self._console.print(picture.fleet(now, self._legend))
        for problem in now.problems:
            self._console.print(Text(problem, style="red"))

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self._server.store.changed()

    def _pod(self, name: str) -> Object | None:
        return self._server.store.get(PODS.storage, "default", name)

    def _settled(self, name: str, want: Want) -> bool:
        """Return whether a pod has a node, or is refused as it should be, in its condition and in an event."""
        pod = self._pod(name)
        if pod is None or pod["spec"].get("nodeName"):
            return pod is not None
        return isinstance(want, Waits) and want.because in _refusal(pod) and self._has_event(pod, want.because)

    def _events(self) -> list[Object]:
        return self._server.store.objects(EVENTS.storage, "default")

    def _has_event(self, pod: Object, words: str) -> bool:
        own = [event for event in self._events() if event["involvedObject"].get("uid") == pod["metadata"]["uid"]]
        return any(words in event.get("message", "") for event in own)

    def _why_not(self, name: str, want: Want, now: occupancy.Occupancy) -> str:
        """Return what is not as expected; empty if all is."""
        pod, holding = self._pod(name), now.holdings.get(name)
        match want:
            case Placed(ids=ids, on=on):
                if holding is None:
                    return f"{name} was not placed: {_refusal(pod or {})}"
                if holding.ids != (ids or holding.ids) or holding.node != (on or holding.node):
                    return f"{name} got {holding.ids} on {holding.node}, not {ids} on {on or 'any node'}"
            case Waits(because=because):
                if holding is not None or pod is None or because not in _refusal(pod):
                    return f"{name} should wait because of {because!r}, but: {_refusal(pod or {}) or holding}"
                if not self._has_event(pod, because):
                    return f"no event of {name} has {because!r}"
        return ""

    def _outcome(self, name: str) -> Outcome:
        pod, holding = self._pod(name), occupancy.read(self._server.store).holdings.get(name)
        asked = self._plans[name].asks
        if holding is not None:
            return Outcome(pod=name, asked=asked, node=holding.node, got=holding.shown())
        return Outcome(pod=name, asked=asked, refusal=_refusal(pod or {}) or "no outcome")

    def _summary(self) -> Text:
        placed = [outcome for outcome in self._outcomes.values() if outcome.node]
        waiting = len(self._outcomes) - len(placed)
        binds = sum(method == "POST" and path.endswith("/binding") for method, path in self._server.requests)
        return Text(
            f"All checks passed: {len(self._had)} pods were placed by {binds} Bindings, {len(placed)} of them still "
            f"exist, {waiting} others are pending. Every set is a legal block, and no core is used twice.",
            style="bold green",
        )


def _subject(event: Object) -> str:
    return str(event["involvedObject"].get("name", ""))


def _refusal(pod: dict[str, Any]) -> str:
    """Return the message of PodScheduled=False; empty if there is none."""
    for condition in pod.get("status", {}).get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", ""))
    return ""

"""What a new state of an object means, without any I/O."""

from collections.abc import Callable
from operator import eq
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.kube.objects.base import Decoded, Malformed
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.watch.object_store import ObjectStore
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selecting_kinds import Workload


@attrs.define(eq=False)
class Log:
    """A handler that records its calls, as short texts, and the objects that result from them."""

    calls: list[str] = attrs.field(factory=list)
    pods: dict[str, Pod] = attrs.field(factory=dict)
    bad: dict[str, Malformed] = attrs.field(factory=dict)

    def on_added(self, new: Pod) -> None:
        """Add a pod."""
        assert new.key not in self.pods
        self.pods[new.key] = new
        self.calls.append(f"added {new.uid}")

    def on_updated(self, old: Pod, new: Pod) -> None:
        """Replace a pod."""
        assert self.pods[new.key] == old
        self.pods[new.key] = new
        self.calls.append(f"updated {new.uid}")

    def on_deleted(self, old: Pod) -> None:
        """Remove a pod."""
        assert self.pods.pop(old.key) == old
        self.calls.append(f"deleted {old.uid}")

    def on_malformed(self, malformed: Malformed) -> None:
        """Add a malformed object."""
        self.bad[malformed.key] = malformed
        self.calls.append(f"malformed {malformed.uid}")

    def on_malformed_gone(self, malformed: Malformed) -> None:
        """Remove it."""
        assert self.bad.pop(malformed.key) == malformed
        self.calls.append(f"no longer malformed {malformed.uid}")


def seen(uid: str = "u1", *, name: str = "a", **fields: Any) -> Decoded[Pod]:
    """Return a decoded pod."""
    pod = attrs.evolve(Pod(uid=uid, namespace="d", name=name), **fields)
    return Decoded(pod.key, uid, pod.resource_version, pod)


def broken(uid: str = "u1", *, name: str = "a", reason: str = "r", node: str = "") -> Decoded[Pod]:
    return Decoded(f"d/{name}", uid, "9", Malformed("Pod", f"d/{name}", reason, uid, node))


def store_of(handler: Any, **options: Any) -> ObjectStore[Pod]:
    return ObjectStore(
        **({"handler": handler, "kind": PODS.kind, "is_same": PODS.is_same, "on_failure": lambda: None} | options)
    )


ENDED: Decoded[Pod] = Decoded("d/a", "u1", "2", None)
LIVES: dict[str, tuple[list[Decoded[Pod] | str], list[str]]] = {
    "added, updated, and deleted with its last state": (
        [seen(), seen(priority=1), "d/a"],
        ["added u1", "updated u1", "deleted u1"],
    ),
    "a write that changes nothing that we read": (
        [seen(), seen(resource_version="8", observed_generation=2)],
        ["added u1"],
    ),
    "created again, and the deletion was missed": (
        [seen("u1"), seen("u2")],
        ["added u1", "deleted u1", "added u2"],
    ),
    "the last good state stays until the object is gone": (
        [seen(), broken(), broken(), "d/a"],
        ["added u1", "malformed u1", "deleted u1", "no longer malformed u1"],
    ),
    "the last good state belongs to its own uid only": (
        [seen("u1"), broken("u2")],
        ["added u1", "deleted u1", "malformed u2"],
    ),
    "a malformed pod is gone with its uid": (
        [broken("u1"), broken("u2"), "d/a"],
        ["malformed u1", "no longer malformed u1", "malformed u2", "no longer malformed u2"],
    ),
    "a malformed pod that becomes bound holds something": (
        [broken(), broken(node="n1"), seen(node_name="n1")],
        ["malformed u1", "malformed u1", "added u1", "no longer malformed u1"],
    ),
    "a terminal phase counts as a deletion": ([ENDED, seen(), ENDED], ["added u1", "deleted u1"]),
}


@pytest.mark.parametrize("sentence", LIVES)
def test_what_is_handed_over(sentence: str) -> None:
    """The calls that follow from the states of an object, in which a key stands for a deletion."""
    states, calls = LIVES[sentence]
    log = Log()
    store = store_of(log)
    for state in states:
        if isinstance(state, str):
            store.remove(state)
        else:
            store.put(state)

    assert log.calls == calls


STATES = st.lists(
    st.one_of(
        st.builds(
            lambda name, uid, priority: seen(uid, name=name, priority=priority),
            st.sampled_from("ab"), st.sampled_from(["u1", "u2"]), st.integers(0, 1),
        ),
        st.builds(lambda name, uid: broken(uid, name=name), st.sampled_from("ab"), st.sampled_from(["u1", "u2"])),
        st.sampled_from(["d/a", "d/b"]),
    )
)  # fmt: skip


@attrs.define(eq=False)
class Failing:
    """
    A handler that fails in some calls, before or after it has done its work.

    Attributes:
        plan: for each call `done`, or a failure `before` or `after` the work; later calls succeed.
    """

    plan: list[str]
    pods: dict[str, Pod] = attrs.field(factory=dict)
    bad: dict[str, Malformed] = attrs.field(factory=dict)

    def _do(self, action: Callable[[], object]) -> None:
        step = self.plan.pop(0) if self.plan else "done"
        if step == "before":
            raise RuntimeError(step)
        action()
        if step == "after":
            raise KeyError(step)

    def on_added(self, new: Pod) -> None:
        self._do(lambda: self.pods.update({new.key: new}))

    def on_updated(self, old: Pod, new: Pod) -> None:
        """Replace a pod."""
        assert old.key == new.key
        self._do(lambda: self.pods.update({new.key: new}))

    def on_deleted(self, old: Pod) -> None:
        self._do(lambda: self.pods.pop(old.key, None))

    def on_malformed(self, malformed: Malformed) -> None:
        self._do(lambda: self.bad.update({malformed.key: malformed}))

    def on_malformed_gone(self, malformed: Malformed) -> None:
        self._do(lambda: self.bad.pop(malformed.key, None))


def test_a_pod_that_the_handler_fails_on_is_an_unknown_holder() -> None:
    """The handler may have stored it in part, so it is removed, and reported as malformed with its node."""
    handler, failures = Failing(["after"]), list[int]()
    store = store_of(handler, on_failure=lambda: failures.append(1))
    store.put(seen(node_name="n1"))

    assert handler.pods == {}
    assert handler.bad == {"d/a": Malformed("Pod", "d/a", "KeyError: 'after'", "u1", "n1")}
    assert failures == [1]

    store.put(seen(node_name="n1"))  # the same state again is another attempt

    assert (set(handler.pods), handler.bad) == ({"d/a"}, {})


def test_a_report_has_the_kind_of_the_api() -> None:
    """Not the name of our own type, which several kinds may share; a handler logs once for each kind and key."""
    handler = Failing(["before"])
    store: Any = store_of(handler, kind="Service", is_same=eq)
    store.put(Decoded("d/a", "u1", "1", Workload("u1", "v1", "Service", "d", "a")))

    assert handler.bad == {"d/a": Malformed("Service", "d/a", "RuntimeError: before", "u1")}


def test_a_failure_is_logged_again_for_a_recreated_object(caplog: pytest.LogCaptureFixture) -> None:
    """The same failure on the same object is logged once; on the next object of that name it is logged again."""
    handler = Failing(["before", "before"])
    store = store_of(handler)
    records = []
    for uid in ("u1", "u1"):
        store.put(seen(uid))
        records.append(len(caplog.records))
    store.remove("d/a")
    handler.plan[:] = ["before"]
    store.put(seen("u2"))
    records.append(len(caplog.records))
    assert records == [1, 1, 2]


@given(STATES, st.lists(st.sampled_from(["done", "before", "after"])))
def test_a_failing_handler_ends_nothing(states: list[Decoded[Pod] | str], plan: list[str]) -> None:
    """Wherever it fails, nothing is raised, and the next list corrects it."""
    handler = Failing(plan)
    store = store_of(handler)
    for state in states:
        if isinstance(state, str):
            store.remove(state)
        else:
            store.put(state)
    plan.clear()
    now = [seen("u3", name="a", node_name="n1"), seen("u4", name="c")]
    for pod in now:
        store.put(pod)
    for key in set(store.keys()) - {pod.key for pod in now}:
        store.remove(key)

    assert handler.pods == {pod.key: pod.value for pod in now}

"""What a new sight of an object means, without any I/O."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.kube.objects.base import Decoded, Malformed
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.watch.object_store import ObjectStore
from neuron_scheduler.model.pod import Pod


@attrs.define(eq=False)
class Log:
    """A handler that remembers what it was told, as short texts, and what it must hold in consequence."""

    told: list[str] = attrs.field(factory=list)
    pods: dict[str, Pod] = attrs.field(factory=dict)
    bad: dict[str, Malformed] = attrs.field(factory=dict)

    def added(self, new: Pod) -> None:
        """Take in a pod."""
        assert new.key not in self.pods
        self.pods[new.key] = new
        self.told.append(f"added {new.uid}")

    def updated(self, old: Pod, new: Pod) -> None:
        """Take in a change."""
        assert self.pods[new.key] == old
        self.pods[new.key] = new
        self.told.append(f"updated {new.uid}")

    def deleted(self, old: Pod) -> None:
        """Let go of a pod."""
        assert self.pods.pop(old.key) == old
        self.told.append(f"deleted {old.uid}")

    def malformed(self, found: Malformed) -> None:
        """Take in a malformed object."""
        self.bad[found.key] = found
        self.told.append(f"malformed {found.uid}")

    def mended(self, found: Malformed) -> None:
        """Let go of it."""
        assert self.bad.pop(found.key) == found
        self.told.append(f"mended {found.uid}")


def seen(uid: str = "u1", *, name: str = "a", **fields: Any) -> Decoded[Pod]:
    """A readable pod as it was decoded."""
    pod = attrs.evolve(Pod(uid=uid, namespace="d", name=name), **fields)
    return Decoded(pod.key, uid, pod.resource_version, pod)


def broken(uid: str = "u1", *, name: str = "a", reason: str = "r", node: str = "") -> Decoded[Pod]:
    """A malformed pod as it was decoded."""
    return Decoded(f"d/{name}", uid, "9", Malformed("Pod", f"d/{name}", reason, uid, node))


@pytest.fixture
def log() -> Log:
    """A handler."""
    return Log()


@pytest.fixture
def reflection(log: Log) -> ObjectStore[Pod]:
    """A reflection of pods."""
    return ObjectStore(handler=log, same=PODS.same)


def test_a_life(log: Log, reflection: ObjectStore[Pod]) -> None:
    """Added, updated, deleted with what was last known."""
    reflection.put(seen())
    reflection.put(seen(priority=1))
    reflection.remove("d/a")

    assert log.told == ["added u1", "updated u1", "deleted u1"]
    assert len(reflection) == 0


def test_a_change_of_versions_only_is_not_told(log: Log, reflection: ObjectStore[Pod]) -> None:
    """A kubelet's heartbeat on a pod wakes nobody."""
    reflection.put(seen())
    reflection.put(seen(resource_version="8", observed_generation=2))

    assert log.told == ["added u1"]


def test_another_uid_is_another_pod(log: Log, reflection: ObjectStore[Pod]) -> None:
    """A recreation whose deletion was missed is told as both."""
    reflection.put(seen("u1"))
    reflection.put(seen("u2"))

    assert log.told == ["added u1", "deleted u1", "added u2"]


def test_a_malformed_change_keeps_the_last_good_state(log: Log, reflection: ObjectStore[Pod]) -> None:
    """What was read stays until the object is gone, and is then handed out."""
    reflection.put(seen())
    reflection.put(broken())
    reflection.put(broken())
    reflection.remove("d/a")

    assert log.told == ["added u1", "malformed u1", "deleted u1", "mended u1"]


def test_a_malformed_recreation_ends_the_old_pod(log: Log, reflection: ObjectStore[Pod]) -> None:
    """The last good state belongs to its own uid only."""
    reflection.put(seen("u1"))
    reflection.put(broken("u2"))

    assert log.told == ["added u1", "deleted u1", "malformed u2"]


def test_a_malformed_pod_that_moves_is_told_again(log: Log, reflection: ObjectStore[Pod]) -> None:
    """An unreadable pod that becomes bound holds something on that node."""
    reflection.put(broken())
    reflection.put(broken(node="n1"))
    reflection.put(seen(node_name="n1"))

    assert log.told == ["malformed u1", "malformed u1", "added u1", "mended u1"]


def test_what_cannot_be_named_is_told_and_not_kept(log: Log, reflection: ObjectStore[Pod]) -> None:
    """Without a name nothing can be mended."""
    nameless: Decoded[Pod] = Decoded("", "", "", Malformed("Pod", "", "r"))
    reflection.put(nameless)

    assert log.told == ["malformed "]
    assert list(reflection.missing(set())) == []


def test_an_ended_pod_is_gone(log: Log, reflection: ObjectStore[Pod]) -> None:
    """A terminal phase counts as a deletion, also of what was never seen."""
    reflection.put(Decoded("d/a", "u1", "1", None))
    reflection.put(seen())
    reflection.put(Decoded("d/a", "u1", "2", None))

    assert log.told == ["added u1", "deleted u1"]


SIGHTS = st.lists(
    st.one_of(
        st.builds(
            lambda name, uid, priority: seen(uid, name=name, priority=priority),
            st.sampled_from("ab"), st.sampled_from(["u1", "u2"]), st.integers(0, 1),
        ),
        st.builds(lambda name, uid: broken(uid, name=name), st.sampled_from("ab"), st.sampled_from(["u1", "u2"])),
        st.sampled_from(["d/a", "d/b"]),
    )
)  # fmt: skip


@given(SIGHTS)
def test_the_handler_always_holds_what_is_there(sights: list[Decoded[Pod] | str]) -> None:
    """Whatever comes in whatever order, calls fit together and the end is clean."""
    log = Log()
    reflection: ObjectStore[Pod] = ObjectStore(handler=log, same=PODS.same)
    for sight in sights:
        if isinstance(sight, str):
            reflection.remove(sight)
        else:
            reflection.put(sight)
        assert set(log.pods) | set(log.bad) == set(reflection.missing(set()))
    for key in reflection.missing(set()):
        reflection.remove(key)

    assert (log.pods, log.bad) == ({}, {})


@attrs.define(eq=False)
class Clumsy:
    """
    A handler that fails on some calls, before or after it has done what it was asked to.

    Attributes:
        plan: what happens with each call: done, `before` or `after` a failure; all is well beyond its end.
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

    def added(self, new: Pod) -> None:
        """Take in a pod."""
        self._do(lambda: self.pods.update({new.key: new}))

    def updated(self, old: Pod, new: Pod) -> None:
        """Take in a change."""
        assert old.key == new.key
        self._do(lambda: self.pods.update({new.key: new}))

    def deleted(self, old: Pod) -> None:
        """Let go of a pod."""
        self._do(lambda: self.pods.pop(old.key, None))

    def malformed(self, found: Malformed) -> None:
        """Take in a malformed object."""
        self._do(lambda: self.bad.update({found.key: found}))

    def mended(self, found: Malformed) -> None:
        """Let go of it."""
        self._do(lambda: self.bad.pop(found.key, None))


def test_a_pod_that_the_handler_fails_on_is_an_unknown_holder() -> None:
    """The handler may have stored it in part, so it is removed, and reported as malformed with its node."""
    handler, failures = Clumsy(["after"]), list[int]()
    reflection: ObjectStore[Pod] = ObjectStore(handler=handler, same=PODS.same, failed=lambda: failures.append(1))
    reflection.put(seen(node_name="n1"))

    assert handler.pods == {}
    assert handler.bad == {"d/a": Malformed("Pod", "d/a", "KeyError: 'after'", "u1", "n1")}
    assert failures == [1]

    reflection.put(seen(node_name="n1"))  # the same sight again is another chance

    assert (set(handler.pods), handler.bad) == ({"d/a"}, {})


def test_a_deletion_that_fails_is_tried_again_with_the_next_list() -> None:
    """What the handler still holds counts as held, and must not do so for ever."""
    handler = Clumsy(["done", "before"])
    reflection: ObjectStore[Pod] = ObjectStore(handler=handler, same=PODS.same)
    reflection.put(seen())
    reflection.remove("d/a")
    assert handler.pods

    for key in reflection.missing(set()):
        reflection.remove(key)

    assert handler.pods == {}


def test_a_failure_is_told_again_of_an_object_made_anew(caplog: pytest.LogCaptureFixture) -> None:
    """The same failure on the same object is no news; on the next object of that name it is."""
    handler = Clumsy(["before", "before"])
    reflection: ObjectStore[Pod] = ObjectStore(handler=handler, same=PODS.same)
    told = []
    for uid in ("u1", "u1"):
        reflection.put(seen(uid))
        told.append(len(caplog.records))
    reflection.remove("d/a")
    handler.plan[:] = ["before"]
    reflection.put(seen("u2"))
    told.append(len(caplog.records))
    assert told == [1, 1, 2]


@given(SIGHTS, st.lists(st.sampled_from(["done", "before", "after"])))
def test_a_clumsy_handler_ends_nothing(sights: list[Decoded[Pod] | str], plan: list[str]) -> None:
    """Whatever it fails on, nothing is raised, and the next list puts it right."""
    handler = Clumsy(plan)
    reflection: ObjectStore[Pod] = ObjectStore(handler=handler, same=PODS.same)
    for sight in sights:
        if isinstance(sight, str):
            reflection.remove(sight)
        else:
            reflection.put(sight)
    plan.clear()
    now = [seen("u3", name="a", node_name="n1"), seen("u4", name="c")]
    for pod in now:
        reflection.put(pod)
    for key in reflection.missing({pod.key for pod in now}):
        reflection.remove(key)

    assert handler.pods == {pod.key: pod.value for pod in now}

"""
Leaves the names of pods out of an answer that its reader may not see; counts, sizes and nodes stay.

Names are fields of some values, and `namespace/name` in sentences. So every text of an answer is searched for that
form. A sentence about pods that a reader may not see has no command, which would name them too.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any, Final, TypeVar, cast

import attrs

from neuron_scheduler.explain.answers.explanation import Change, LeavingPod
from neuron_scheduler.model.wording import clipped
from neuron_scheduler.questions.readers import Names
from neuron_scheduler.scheduling.plugins import node_affinity

_KEY: Final = re.compile(
    rf"{re.escape(node_affinity.REASON)}(?!\.?[-\w])|"
    r"(?<![\w./-])(?![0-9]+/[0-9]+ nodes? )([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)/([a-z0-9][-a-z0-9.]{0,252})",
    re.ASCII,
)
"""
A name, or the one reason of the filters that has a part of that form, `affinity/selector`: that one has no groups.

`0/5 nodes are available` is no key; any other fraction may be one, since a namespace may be called `42`.
"""
_PARTS_A_STEP: Final = 32
_LONG: Final = 32
"""Items of a list above which they are not made in one step."""
A_POD: Final = "(a pod that you may not see)"
A_BUDGET: Final = "(one that you may not see)"

T = TypeVar("T", bound=attrs.AttrsInstance)


def namespaces_in(answer: attrs.AttrsInstance) -> Iterator[frozenset[str] | None]:
    """
    Yield None whenever other tasks may run, and at the end all that may be namespaces of pods in an answer.

    They are looked for in its fields and its sentences.
    """
    found: set[str] = set()
    for number, part in enumerate(_parts(answer)):
        found.update(_namespaces(part))
        if number % _PARTS_A_STEP == 0:
            yield None
    yield frozenset(found - {""})


def redacted(answer: T, names: Names, *, own: Collection[str] = ()) -> T:
    """
    Return the answer without the names that a reader may not see.

    Args:
        answer: any value of `explain.answers` about pods; lists in it may be long, and are made item by item.
        names: what the reader may see.
        own: keys of pods that stay, whatever their namespace: those that the question was about.
    """
    if names.shown is None:
        return answer
    return cast(T, _Redaction(names, frozenset(own)).of_answer(answer))


def _parts(answer: attrs.AttrsInstance) -> Iterator[Any]:
    """Yield the values of an answer, and the items of its lists."""
    yield getattr(answer, "namespace", "")
    for field in attrs.fields(type(answer)):
        value = getattr(answer, field.name)
        if isinstance(value, tuple):
            yield from value
        else:
            yield value


def _namespaces(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if "/" in value:
            yield from (match[1] for match in _KEY.finditer(value) if match[1])
    elif isinstance(value, tuple):
        for item in value:
            yield from _namespaces(item)
    elif attrs.has(type(value)):
        yield getattr(value, "namespace", "")
        for field in attrs.fields(type(value)):
            yield from _namespaces(getattr(value, field.name))


@attrs.frozen
class _Redaction:
    names: Names
    own: frozenset[str]

    def of_answer(self, answer: Any) -> Any:
        """Return an answer without these names; its long lists are made item by item."""
        lists = {
            field.name: map(self.of, value)
            for field in attrs.fields(type(answer))
            if isinstance(value := getattr(answer, field.name), tuple) and len(value) > _LONG
        }
        rest = attrs.evolve(answer, **dict.fromkeys(lists, ()))
        return attrs.evolve(self.of(rest), **lists)

    def of(self, value: Any) -> Any:
        """Return a value, or the values in it, without these names."""
        if isinstance(value, str):
            return _KEY.sub(self._key, value) if "/" in value and type(value) is str else value
        if isinstance(value, tuple):
            return tuple(map(self.of, value))
        if not attrs.has(type(value)):
            return value
        if self._hides(getattr(value, "namespace", ""), getattr(value, "name", "")):
            nameless = attrs.evolve(value, namespace="", name="")
            return attrs.evolve(nameless, budgets=()) if isinstance(nameless, LeavingPod) else nameless
        changed = {
            field.name: self.of(getattr(value, field.name))
            for field in attrs.fields(type(value))
            if field.name not in ("namespace", "name")
        }
        answer = attrs.evolve(value, **changed)
        return self._of_change(value, answer) if isinstance(value, Change) else answer

    def _of_change(self, before: Change, change: Change) -> Change:
        """Return a change without a command that names hidden pods, and without what a sentence says of them."""
        hidden = [pod for pod in before.pods if self._hides(pod.namespace, pod.name)]
        if not hidden:
            return change if change.command == before.command else attrs.evolve(change, command="")
        sentence = change.sentence
        shown = {budget for pod in change.pods for budget in pod.budgets}
        for budget in {budget for pod in hidden for budget in pod.budgets} - shown:
            for text in (budget, clipped(budget)):
                sentence = _word(text).sub(A_BUDGET, sentence)
        if any(_word(name).search(sentence) for pod in hidden for name in (pod.name, pod.namespace)):
            sentence = (
                f"{len(before.pods)} pods of {before.node_name or 'one node'} end, some of which you may not see."
            )
        return attrs.evolve(change, sentence=sentence, command="")

    def _key(self, match: re.Match[str]) -> str:
        if not match[1]:
            return match[0]
        namespace, name = match[1], match[2].rstrip(".-")  # in a sentence a full stop may follow
        return A_POD + match[2][len(name) :] if self._hides(namespace, name) else match[0]

    def _hides(self, namespace: str, name: str) -> bool:
        return bool(namespace) and f"{namespace}/{name}" not in self.own and namespace not in self.names


def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])")

"""No name of a pod that a reader may not see is in an answer, whatever text it is in; all else stays."""

from collections.abc import Iterator

import attrs
import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.answer_json import to_json
from neuron_scheduler.explain.answers.explanation import (
    Change,
    ChangeKind,
    Explanation,
    FilterCount,
    LeavingPod,
    NodeGroup,
    PodSummary,
    Verdict,
)
from neuron_scheduler.model.wording import few_names
from neuron_scheduler.questions.readers import Names
from neuron_scheduler.questions.redaction import A_POD, namespaces_in, redacted
from neuron_scheduler.scheduling.plugins import node_affinity

MESSAGE = (
    "0/5 nodes are available: 3 Insufficient aws.amazon.com/neurondevice, 2 node(s) had a pod with an unknown Neuron"
    " allocation. Unknown ids: n1 is blocked by secret/train-0 (schedulerName x) and 1 more, n2 is blocked by"
    " mine/web (unreadable)."
)
ANSWER = Explanation(
    pod=PodSummary("mine", "asking"),
    verdict=Verdict.WAITS,
    message=MESSAGE,
    filters=(FilterCount("NodeResourcesFit", "Insufficient aws.amazon.com/neurondevice", 3),),
    groups=(
        NodeGroup(1, ("n1",), "trn1.32xlarge", arithmetic="kept for secret/train-1.", kept_for=("secret/train-1",)),
    ),
    changes=(
        Change(
            ChangeKind.DEPARTURE,
            "secret/train-0 and mine/web end; mine/asking then goes to n1.",
            command="kubectl delete pod --namespace secret train-0",
            node_name="n1",
            pods=(LeavingPod("secret", "train-0", budgets=("train",)), LeavingPod("mine", "web", budgets=("web",))),
        ),
        Change(ChangeKind.UNCORDON, "n2 takes it.", command="kubectl uncordon n2"),
    ),
)
SOME = Names(frozenset({"mine"}))


def texts(value: object) -> Iterator[str]:
    """Yield every string of JSON values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def test_which_namespaces_are_asked_about() -> None:
    """Those of the pods that are named, in fields and in sentences; `0/5` and names of resources are none."""
    *_, found = namespaces_in(ANSWER)
    assert found == frozenset({"mine", "secret"})


def test_long_lists() -> None:
    """A long list is looked through in steps, and made item by item when it is needed."""
    many = attrs.evolve(ANSWER, groups=ANSWER.groups * 500)
    *pauses, found = namespaces_in(many)
    assert (len(pauses) > 10, found) == (True, frozenset({"mine", "secret"}))
    seen = redacted(many, SOME)
    assert not isinstance(seen.groups, tuple)
    assert {group.kept_for for group in seen.groups} == {(A_POD,)}
    assert redacted(ANSWER, SOME).groups[0].kept_for == (A_POD,)


def test_names_are_left_out() -> None:
    """Counts, nodes, budgets of others and commands stay."""
    seen = redacted(ANSWER, SOME, own=("mine/asking",))
    assert seen.message == MESSAGE.replace("secret/train-0", A_POD)
    assert (seen.groups[0].arithmetic, seen.groups[0].kept_for) == (f"kept for {A_POD}.", (A_POD,))
    departure, uncordon = seen.changes
    assert departure.sentence == f"{A_POD} and mine/web end; mine/asking then goes to n1."
    assert (departure.command, departure.node_name) == ("", "n1")
    assert departure.pods == (LeavingPod("", ""), LeavingPod("mine", "web", budgets=("web",)))
    assert uncordon == ANSWER.changes[1]
    assert not [text for text in texts(to_json(seen)) if "secret" in text or "train-0" in text]


def test_a_budget_of_a_hidden_pod() -> None:
    """The name of a budget belongs to its namespace; one of the same name that the reader sees stays."""
    change = attrs.evolve(ANSWER.changes[0], sentence="secret/train-0 ends. The budgets train and web allow 0.")
    assert redacted(change, SOME).sentence == f"{A_POD} ends. The budgets (one that you may not see) and web allow 0."


def test_a_long_name_of_a_budget() -> None:
    """A sentence has only the beginning of it, which belongs to the tenant, too."""
    name = "s3cret-" * 20
    sentence = f"x/y ends. This goes beyond what the disruption budget {few_names([name])} allows."
    change = Change(ChangeKind.DEPARTURE, sentence, pods=(LeavingPod("secret", "p", budgets=(name,)),))
    assert "s3cret" not in redacted(change, SOME).sentence


@pytest.mark.parametrize("key", ["42/train", "42/7", "42/7-train", "42/7.train", "42/7, 8", "0/5"])
def test_a_namespace_that_is_a_number(key: str) -> None:
    """A fraction is a key, unless it counts nodes."""
    assert redacted(Change(ChangeKind.COUNT, f"by {key}."), SOME).sentence.startswith(f"by {A_POD}")


def test_a_name_in_other_words() -> None:
    """A sentence that names a hidden pod without its namespace is replaced as a whole."""
    change = attrs.evolve(ANSWER.changes[0], sentence="The pod train-0 of another team ends.")
    seen = redacted(change, SOME)
    assert "train-0" not in seen.sentence
    assert seen.sentence == "2 pods of n1 end, some of which you may not see."


def test_who_may_see_all() -> None:
    """Nothing is changed; the pod that was asked about stays in any case."""
    assert redacted(ANSWER, Names(None)) is ANSWER
    nameless = redacted(ANSWER, Names(frozenset()), own=("mine/asking",))
    assert nameless.pod == PodSummary("mine", "asking")
    assert "mine/web" not in nameless.message
    assert nameless.message.startswith("0/5 nodes are available")


@pytest.mark.parametrize(
    "text", ["0/5 nodes are", "12/300 nodes are", "https://secret/train-0", "a.secret/x", "secret/", "/train-0"]
)
def test_what_is_no_key(text: str) -> None:
    """Fractions, addresses and paths are left alone."""
    change = Change(ChangeKind.COUNT, text)
    assert redacted(change, Names(frozenset())) == change


@pytest.mark.parametrize("after", ["", ".", ". Capacity: no device is free.", ", 1 node(s) were unschedulable."])
def test_a_reason_that_looks_like_a_key(after: str) -> None:
    """The reason of NodeAffinity stays as it is, and a pod whose name only begins like it is left out."""
    change = Change(ChangeKind.COUNT, f"0/5 nodes are available: 3 {node_affinity.REASON}{after}")
    assert redacted(change, Names(frozenset())) == change
    assert list(namespaces_in(change))[-1] == frozenset()
    assert A_POD in redacted(Change(ChangeKind.COUNT, f"{node_affinity.REASON}-0"), Names(frozenset())).sentence
    assert redacted(Change(ChangeKind.COUNT, "by affinity/selector"), Names(frozenset())).sentence == f"by {A_POD}"


NAME = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)


@given(NAME, NAME, st.sampled_from(["{}", "by {}.", "({}), x", "'{}'", "a {}\n"]))
def test_any_name(namespace: str, name: str, around: str) -> None:
    """A key is found wherever it is in a sentence."""
    seen = redacted(Change(ChangeKind.COUNT, around.format(f"{namespace}/{name}")), Names(frozenset({f"{namespace}x"})))
    assert seen.sentence == around.format(A_POD)

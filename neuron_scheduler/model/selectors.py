"""
Label selectors, node selector terms, taints and tolerations, and when they match.

Upstream: `apimachinery/pkg/labels`, `component-helpers/scheduling/corev1`. An unreadable selector matches nothing. The
indexes of `cluster` match many nodes at once; their tests compare them with the definitions here.
"""

import enum
from collections.abc import Iterable, Mapping
from functools import lru_cache

import attrs

NO_LABELS: Mapping[str, str] = {}

_INT64 = 1 << 63
_INT64_DIGITS = 19


class Operator(enum.StrEnum):
    """How a requirement compares a label with its values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@lru_cache(maxsize=1 << 12)
def parse_int64(text: str) -> int | None:
    """Return the integer as Go's `strconv.ParseInt(text, 10, 64)` reads it, or None where it refuses."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    significant = digits.lstrip("0") or "0"
    if len(significant) > _INT64_DIGITS:  # int() itself raises beyond some thousand digits
        return None
    number = -int(significant) if text[0] == "-" else int(significant)
    return number if -_INT64 <= number < _INT64 else None


@attrs.frozen(cache_hash=True)
class Requirement:
    """One condition on one label (or, in `match_fields`, on a field)."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels satisfy the requirement; `NotIn` and `DoesNotExist` accept an absent label."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value is not None and value in self.values
            case Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GT | Operator.LT:
                return value is not None and self.accepts_number(value)

    def accepts_number(self, value: str) -> bool:
        """Return whether the label value, read as an int64, is beyond the requirement's one bound (Gt, Lt)."""
        number = parse_int64(value)
        bound = parse_int64(self.values[0]) if len(self.values) == 1 else None
        if number is None or bound is None:
            return False
        return number > bound if self.operator is Operator.GT else number < bound


@attrs.frozen(cache_hash=True)
class LabelSelector:
    """`matchLabels` and `matchExpressions` together; empty matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        for requirement in self.requirements:  # noqa: SIM110  # called for every pod: a generator doubles the cost
            if not requirement.matches(labels):
                return False
        return True


@attrs.frozen(cache_hash=True)
class NodeSelectorTerm:
    """
    AND over expressions on labels and on fields (only `metadata.name`).

    Attributes:
        unreadable: the term has an operator or a field that does not parse; it matches nothing.
    """

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    unreadable: bool = False

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Return whether a node matches; an empty term matches nothing."""
        if self.unreadable or not (self.expressions or self.fields):
            return False
        return all(r.matches(labels) for r in self.expressions) and all(
            r.matches({"metadata.name": name}) for r in self.fields
        )


@attrs.frozen(cache_hash=True)
class PreferredTerm:
    """A node selector term with the weight it adds (1 to 100)."""

    weight: int
    term: NodeSelectorTerm


@attrs.frozen(cache_hash=True)
class PodAffinityTerm:
    """
    A required or preferred (anti-)affinity term as the pod carries it.

    Attributes:
        selector: None matches no pod.
        namespaces: explicit namespaces; the pod's own if the term has neither namespaces nor a selector of them.
        namespace_selector: None if absent; an empty one means every namespace.
    """

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str] = frozenset()
    namespace_selector: LabelSelector | None = None
    weight: int = 0


@attrs.frozen(cache_hash=True)
class SpreadConstraint:
    """
    A topology spread constraint; counts the pods of the same namespace that are not being deleted.

    Attributes:
        hard: `DoNotSchedule`; else `ScheduleAnyway`, a preference.
        selector: with `matchLabelKeys` merged in. None matches no pod; an empty one counts no pod, though it
            matches the pod itself.
        min_domains: with fewer eligible domains the lowest count is 0.
        honor_affinity: nodes outside the pod's node selector and required affinity do not count.
        honor_taints: nodes with a taint that the pod does not tolerate do not count.
    """

    topology_key: str
    max_skew: int
    hard: bool
    selector: LabelSelector | None
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


class Effect(enum.StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@attrs.frozen(cache_hash=True)
class Taint:
    """A taint without `timeAdded`, which no decision needs."""

    key: str
    effect: Effect
    value: str = ""


@attrs.frozen(cache_hash=True)
class Toleration:
    """
    A toleration; an empty key with `exists` tolerates every key, an empty effect every effect.

    Attributes:
        exists: operator `Exists`; otherwise `Equal`. Operators behind an alpha gate make the toleration `unreadable`.
    """

    key: str = ""
    exists: bool = False
    value: str = ""
    effect: Effect | None = None
    unreadable: bool = False

    def tolerates(self, taint: Taint) -> bool:
        """Return whether the taint is tolerated (`corev1.Toleration.ToleratesTaint`)."""
        if self.unreadable or (self.effect is not None and self.effect is not taint.effect):
            return False
        if self.key:
            return self.key == taint.key and (self.exists or self.value == taint.value)
        return self.exists


def tolerates_all(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    tolerations = tuple(tolerations)
    return all(any(t.tolerates(taint) for t in tolerations) for taint in taints)

"""Generated rules about other pods: topology spread constraints, pod affinity and anti-affinity."""

from random import Random

from tests.differential.vocabulary import HOSTNAME, RACK, ZONE, Object, chance, given, sample, several, sometimes

APPS = ("web", "db")
TOPOLOGIES = (ZONE, ZONE, HOSTNAME, HOSTNAME, RACK)
KEYS = ("version", "shard")


def pod_labels(dice: Random) -> dict[str, str]:
    """Return labels that the selectors below may match."""
    labels = {"app": dice.choice(APPS)} if chance(dice, 0.9) else {}
    labels |= sometimes(dice, 0.4, lambda: {"version": dice.choice(["1", "2"])}) or {}
    return labels | (sometimes(dice, 0.2, lambda: {"shard": dice.choice(["a", "b"])}) or {})


def spread_constraints(dice: Random) -> list[Object]:
    """Return one or two constraints, which differ in key or in strictness as the API server requires."""
    constraints = several(dice, 2, lambda: _spread(dice))
    return list(
        {
            (constraint["topologyKey"], constraint["whenUnsatisfiable"]): constraint for constraint in constraints
        }.values()
    )


def _spread(dice: Random) -> Object:
    hard = chance(dice, 0.85)
    selector = sometimes(dice, 0.9, lambda: _selector(dice))
    keys = sometimes(dice, 0.2, lambda: sample(dice, KEYS)) or []
    least_domains = sometimes(dice, 0.35, lambda: dice.randint(1, 6))
    constraint = given(
        maxSkew=dice.choice([1, 1, 1, 2]),
        topologyKey=dice.choice((ZONE, ZONE, HOSTNAME, RACK)),
        whenUnsatisfiable="DoNotSchedule" if hard else "ScheduleAnyway",
        minDomains=least_domains if hard else None,
        nodeAffinityPolicy=dice.choice(["", "Honor", "Ignore"]),
        nodeTaintsPolicy=dice.choice(["", "Honor", "Ignore"]),
        matchLabelKeys=[key for key in keys if key not in _named(selector)] if selector is not None else [],
    )
    return constraint if selector is None else constraint | {"labelSelector": selector}


def affinity(dice: Random) -> Object:
    """Return the terms of `podAffinity` or `podAntiAffinity`, required or preferred."""
    return given(
        requiredDuringSchedulingIgnoredDuringExecution=sometimes(
            dice, 0.85, lambda: several(dice, 2, lambda: _term(dice))
        ),
        preferredDuringSchedulingIgnoredDuringExecution=sometimes(
            dice, 0.2, lambda: [{"weight": 10, "podAffinityTerm": _term(dice)}]
        ),
    )


def _term(dice: Random) -> Object:
    selector = sometimes(dice, 0.9, lambda: _selector(dice))
    free = [key for key in KEYS if selector is not None and key not in _named(selector)]
    keys = sometimes(dice, 0.15, lambda: sample(dice, free, least=0)) or []
    match = chance(dice, 0.5)
    term = given(
        topologyKey=dice.choice(TOPOLOGIES),
        namespaces=sometimes(dice, 0.3, lambda: sample(dice, ("default", "blue", "green", "nowhere"))),
        matchLabelKeys=keys if match else [],
        mismatchLabelKeys=[] if match else keys,
    )
    if selector is not None:
        term["labelSelector"] = selector
    if chance(dice, 0.25):
        term["namespaceSelector"] = dice.choice(
            [
                {},
                {"matchLabels": {"team": "land"}},
                {"matchExpressions": [{"key": "tier", "operator": dice.choice(["Exists", "DoesNotExist"])}]},
                {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["sea"]}]},
                {"matchLabels": {"kubernetes.io/metadata.name": "blue"}},
            ]
        )
    return term


def _selector(dice: Random) -> Object:
    if chance(dice, 0.08):
        return {}
    labels = {"app": dice.choice(APPS)} if chance(dice, 0.7) else {}
    least = 0 if labels and chance(dice, 0.6) else 1
    return given(matchLabels=labels, matchExpressions=several(dice, 1, lambda: _expression(dice), least=least))


def _expression(dice: Random) -> Object:
    operator = dice.choice(["In", "NotIn", "Exists", "DoesNotExist"])
    key, words = dice.choice([("app", APPS), ("version", ("1", "2", "3")), ("shard", ("a", "b"))])
    values = sample(dice, words) if operator in ("In", "NotIn") else []
    return given(key=key, operator=operator, values=values)


def _named(selector: Object | None) -> set[str]:
    parts = selector or {}
    return {*parts.get("matchLabels", {}), *(requirement["key"] for requirement in parts.get("matchExpressions", ()))}

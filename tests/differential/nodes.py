"""Generated nodes, and the pods' rules about them: tolerations, node selectors, node affinity."""

from random import Random

from tests.differential.vocabulary import (
    HOSTNAME,
    RACK,
    REGION,
    ZONE,
    ZONES,
    Object,
    chance,
    given,
    sample,
    several,
    sometimes,
)

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
TAINT_KEYS = ("dedicated", "spot", "example.com/maintenance")
FEATURES = ("GuaranteedQoSPodCPUResize", "RestartAllContainersOnContainerExits")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")


def nodes(dice: Random, prefix: str, *, quiet: bool) -> list[Object]:
    """Return three to eight nodes; quiet ones are large, and few of them are tainted or cordoned."""
    spread_out = chance(dice, 0.8 if quiet else 0.5)  # every node has its zone, as in a real cluster
    names = [f"{prefix}n{number}" for number in range(dice.randint(3, 8))]
    return [_node(dice, name, in_zone=spread_out, quiet=quiet) for name in names]


def _node(dice: Random, name: str, *, in_zone: bool, quiet: bool) -> Object:
    labels = {HOSTNAME: name} if in_zone or chance(dice, 0.9) else {}
    if in_zone or chance(dice, 0.7):
        labels[ZONE] = dice.choice(ZONES)
    labels |= sometimes(dice, 0.3, lambda: {REGION: dice.choice(["r1", "r2"])}) or {}
    labels |= sometimes(dice, 0.5, lambda: {RACK: dice.choice(["1", "2", "07", "30", "x"])}) or {}
    labels |= sometimes(dice, 0.5, lambda: {"disk": dice.choice(["ssd", "hdd", ""])}) or {}
    labels |= sometimes(dice, 0.3, lambda: {INSTANCE_TYPE: dice.choice(["m5.large", "c5.large"])}) or {}
    resources = _resources(dice, quiet=quiet)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": given(
            taints=sometimes(dice, 0.15 if quiet else 0.25, lambda: _taints(dice)),
            unschedulable=chance(dice, 0.03 if quiet else 0.07) or None,
        ),
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
            "declaredFeatures": sorted(sometimes(dice, 0.5, lambda: sample(dice, FEATURES, least=0)) or ()),
            "images": [{"names": ["main:1"], "sizeBytes": 10**9}] if chance(dice, 0.2) else [],
        },
    }


def _resources(dice: Random, *, quiet: bool) -> dict[str, str]:
    if quiet:
        return {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110", "example.com/gpu": "16"}
    amounts = {
        "cpu": dice.choice(["2", "4", "4", "8", "1900m", "0.5"]),
        "memory": dice.choice(["4Gi", "8Gi", "8Gi", "16Gi", "2500M", "4194304Ki"]),
        "pods": dice.choice(["110", "110", "110", "4", "2"]),
        "ephemeral-storage": dice.choice(["20Gi", "100Gi"]),
    }
    amounts |= sometimes(dice, 0.4, lambda: {"example.com/gpu": dice.choice(["1", "2", "4"])}) or {}
    amounts |= sometimes(dice, 0.2, lambda: {"hugepages-2Mi": dice.choice(["4Mi", "64Mi"])}) or {}
    if chance(dice, 0.05):
        del amounts[dice.choice(sorted(amounts))]
    return amounts


def _taints(dice: Random) -> list[Object]:
    taints = several(dice, 2, lambda: _taint(dice))
    return list({(taint["key"], taint["effect"]): taint for taint in taints}.values())


def _taint(dice: Random) -> Object:
    return given(key=dice.choice(TAINT_KEYS), value=dice.choice(["", "a", "b"]), effect=dice.choice(EFFECTS))


def tolerations(dice: Random) -> list[Object]:
    """Return tolerations, some of them for the taints above or for the cordon."""
    return several(dice, 3, lambda: _toleration(dice))


def _toleration(dice: Random) -> Object:
    if chance(dice, 0.2):
        return dice.choice(
            [
                {"operator": "Exists"},
                {"operator": "Exists", "effect": dice.choice(EFFECTS)},
                {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            ]
        )
    exists = chance(dice, 0.5)
    return given(
        key=dice.choice(TAINT_KEYS),
        operator="Exists" if exists else dice.choice(["Equal", ""]),
        value="" if exists else dice.choice(["", "a", "b"]),
        effect=dice.choice(["", "", *EFFECTS]),
    )


def node_affinity(dice: Random, names: list[str]) -> Object:
    """Return `nodeAffinity` with required terms, preferred ones, or both."""
    preferred = {"weight": dice.randint(1, 100), "preference": {"matchExpressions": [_expression(dice)]}}
    return given(
        requiredDuringSchedulingIgnoredDuringExecution=sometimes(
            dice, 0.9, lambda: {"nodeSelectorTerms": several(dice, 3, lambda: _term(dice, names))}
        ),
        preferredDuringSchedulingIgnoredDuringExecution=[preferred] if chance(dice, 0.2) else [],
    )


def node_selector(dice: Random) -> dict[str, str]:
    """Return a node selector of one or two labels."""
    words = {ZONE: dice.choice(ZONES), "disk": dice.choice(["ssd", "hdd", ""]), RACK: dice.choice(["1", "2"])}
    return {key: words[key] for key in sample(dice, sorted(words))}


def _term(dice: Random, names: list[str]) -> Object:
    if chance(dice, 0.05):
        return {}
    fields = sometimes(dice, 0.25, lambda: several(dice, 2, lambda: _field(dice, names))) or []
    least = 0 if fields else 1
    return given(matchExpressions=several(dice, 2, lambda: _expression(dice), least=least), matchFields=fields)


def _expression(dice: Random) -> Object:
    operator = dice.choice(["In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
    match operator:
        case "In" | "NotIn":
            words = {ZONE: [*ZONES, "z9"], "disk": ["ssd", "hdd", ""], RACK: ["1", "2", "07", "x"]}
            key = dice.choice(sorted(words))
            return {"key": key, "operator": operator, "values": sample(dice, words[key], most=3)}
        case "Exists" | "DoesNotExist":
            return {"key": dice.choice([ZONE, "disk", RACK, REGION, HOSTNAME]), "operator": operator}
        case _:
            bound = dice.choice(["1", "2", "0", "007", "7", "99999999999999999999", "many"])
            return {"key": dice.choice([RACK, RACK, "disk"]), "operator": operator, "values": [bound]}


def _field(dice: Random, names: list[str]) -> Object:
    operator = dice.choice(["In", "In", "NotIn"])
    return {"key": "metadata.name", "operator": operator, "values": [dice.choice([*names, "no-such-node"])]}

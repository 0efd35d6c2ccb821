"""The digests of the admission policies are those of `manifests/`, and do not depend on what a person may change."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuron_scheduler.commands.check.subjects.known import ALLOCATIONS, CLAIMS, LEADER, NAME, POLICIES
from neuron_scheduler.commands.check.subjects.policies import EXPECTED, digests, strings_of

MANIFESTS = Path(__file__).parents[4] / "manifests"
ACCOUNT = "system:serviceaccount:kube-system:neuron-scheduler"


def manifests() -> dict[str, dict[str, Any]]:
    """Return the `spec` of each policy of the base, and of claims, by its name."""
    return {
        item["metadata"]["name"]: item["spec"]
        for path in (
            *sorted((MANIFESTS / "base").glob("admission_*.yaml")),
            *MANIFESTS.glob("*/claims/policy/policy.yaml"),
        )
        for item in yaml.safe_load_all(path.read_text())
        if item["kind"] == "ValidatingAdmissionPolicy"
    }


def test_the_digests_are_those_of_the_manifests() -> None:
    """A changed policy needs new digests; the message has them."""
    expected = {name: digests(spec, ACCOUNT) for name, spec in manifests().items()}
    assert set(expected) == {*POLICIES, CLAIMS}
    assert expected == EXPECTED, (
        f"write into _DIGESTS:\n{ {name: ' '.join(each.values()) for name, each in expected.items()} }"
    )


def as_stored(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a `spec` with the defaults that an API server writes."""
    stored = copy.deepcopy(spec)
    stored["matchConstraints"] |= {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
    for rule in stored["matchConstraints"]["resourceRules"]:
        rule["scope"] = "*"
    return stored


def edited(spec: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """Return a `spec` in which a text is replaced in each expression."""
    changed = copy.deepcopy(spec)
    for part in ("matchConditions", "variables", "validations"):
        for each in changed.get(part, []):
            each["expression"] = each["expression"].replace(old, new)
    assert changed != spec
    return changed


@pytest.mark.parametrize("name", [*POLICIES, CLAIMS])
def test_defaults_and_layout_do_not_count(name: str) -> None:
    """What the API server adds, and blanks in expressions, change no digest."""
    spec = manifests()[name]
    assert digests(as_stored(spec), ACCOUNT) == EXPECTED[name]
    assert digests(edited(spec, " ", "\n  "), ACCOUNT) == EXPECTED[name]


def test_the_account_writers_and_names_do_not_count() -> None:
    """A person may write other names, and another namespace has another account; the rest may not differ."""
    specs = manifests()
    mine = edited(specs[LEADER], "kube-system:neuron-scheduler'", "mine:neuron-scheduler'")
    assert digests(mine, ACCOUNT.replace("kube-system", "mine")) == EXPECTED[LEADER] != digests(mine, ACCOUNT)
    more = edited(specs[ALLOCATIONS], "neuron-device-plugin'", "neuron-device-plugin', 'more'")
    assert digests(more, ACCOUNT) == EXPECTED[ALLOCATIONS]
    assert digests(edited(specs[NAME], "'my-scheduler'", "'my-scheduler', 'batch'"), ACCOUNT) == EXPECTED[NAME]


def test_a_difference_has_its_part() -> None:
    """An expression that is changed, and a policy that is for fewer requests, show in the digest of the part only."""
    spec = manifests()[LEADER]
    found = digests(edited(spec, "holderIdentity", "leaseTransitions"), ACCOUNT)
    assert {part for part in found if found[part] != EXPECTED[LEADER][part]} == {"matchConditions"}
    rules = [{**spec["matchConstraints"]["resourceRules"][0], "resources": ["pods/binding"]}]
    for fewer in ({"resourceRules": rules}, {"namespaceSelector": {"matchLabels": {"a": "b"}}}):
        found = digests({**spec, "matchConstraints": {**spec["matchConstraints"], **fewer}}, ACCOUNT)
        assert {part for part in found if found[part] != EXPECTED[LEADER][part]} == {"matchConstraints"}


def test_what_a_policy_says() -> None:
    """The lists that a person may change are read from its expressions."""
    specs = manifests()
    assert strings_of(specs[ALLOCATIONS], "writers") == ("system:serviceaccount:kube-system:neuron-device-plugin",)
    assert strings_of(specs[NAME], "names") == ("my-scheduler",)
    assert strings_of({}, "names") == ()

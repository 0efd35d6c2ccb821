"""
The admission policies: there, as this version expects them, for the account that the scheduler has, and bound.

Without them nothing stops two schedulers, or users, from giving one device to two pods. Decisions 3 and 8 say why each
exists. A policy of an older version for another account refuses our Bindings.

The API server adds defaults, and a person may write other accounts, `writers` and `names`. So these are taken out
before a policy is compared with that of this version, whose texts `EXPECTED` has as digests: the manifests are not part
of the program. `tests/commands/check/subjects/test_policies.py` compares them with `manifests/`, and prints new ones.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from neuron_scheduler.commands.check.subjects import commands
from neuron_scheduler.commands.check.subjects.finding import Finding, error, note, ok, unknown, warning
from neuron_scheduler.commands.check.subjects.known import (
    ALLOCATIONS,
    CAPACITY,
    KEEPER,
    LEADER,
    NAME,
    NODE_NAME,
    POLICIES,
)
from neuron_scheduler.commands.check.subjects.snapshot import Policy, Snapshot, Unread
from neuron_scheduler.model.wording import listed

PURPOSES = {
    LEADER: "an old leader's Bindings are not refused",
    ALLOCATIONS: "any user can write the annotations that say which devices a pod has",
    NODE_NAME: "pods can take devices on a node that they name themselves",
    NAME: "nobody is warned of pods without our scheduler name",
}


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield what is wrong with each policy, and whether the keeper of the watch is there."""
    for unread in (snapshot.policies, snapshot.policy_bindings):
        if isinstance(unread, Unread):
            yield unknown("policies-unknown", "Admission policies are", unread)
            return
    policies, bindings = _by_name(snapshot.policies), _by_name(snapshot.policy_bindings)
    if not (snapshot.installed or policies.keys() & set(POLICIES)):
        kept = f"; {KEEPER} is there, and is to stay" if KEEPER in policies else ""
        yield note("policies-not-installed", f"The admission policies are not installed{kept}")
        return
    if snapshot.is_older:
        yield note("policies-of-older-version", "The admission policies are those of an older version")
        return
    absent = [name for name in POLICIES if name not in policies]
    for name in absent:
        yield warning(
            "policy-missing", f"The policy {name} is missing: {PURPOSES[name]}", command=commands.apply(snapshot)
        )
    faults = [fault for name in POLICIES if name in policies for fault in _faults(snapshot, policies[name], bindings)]
    yield from faults
    yield from _keeper(policies, bindings)
    if not (absent or faults):
        yield ok("policies", f"All {len(POLICIES)} policies are those of version {snapshot.program_version}, and bound")


def _by_name(policies: "tuple[Policy, ...] | Unread") -> dict[str, Policy]:
    return {policy.object.name: policy for policy in policies}


def _faults(snapshot: Snapshot, policy: Policy, bindings: Mapping[str, Policy]) -> Iterator[Finding]:
    """Yield what is wrong with a policy of ours and its binding."""
    name = policy.object.name
    others = sorted(accounts(policy.spec) - {snapshot.username})
    if others:
        yield error(
            "policy-for-another-account",
            f"The policy {name} is for {listed(others)}, but the scheduler is {snapshot.username}",
            advice="It refuses the scheduler, or does not protect from others",
            command=commands.apply(snapshot),
        )
    found, expected = digests(policy.spec), EXPECTED.get(name, {})
    differing = [part for part, digest in expected.items() if found[part] != digest]
    if differing:
        yield warning(
            "policy-stale",
            f"The policy {name} is not that of version {snapshot.program_version}: its {listed(differing)} differ",
            advice="If you have changed it yourself, compare it with the manifest",
            command=commands.apply(snapshot),
        )
    if name == NAME:
        yield from _names(snapshot, policy)
    if name == LEADER:
        yield from _without_election(snapshot)
    yield from _binding_faults(snapshot, name, bindings.get(name))


def _names(snapshot: Snapshot, policy: Policy) -> Iterator[Finding]:
    names = strings_of(policy.spec, "names")
    missing = [name for name in snapshot.scheduler_names if name not in names]
    if missing:
        yield warning(
            "policy-without-scheduler-name",
            f"The policy {NAME} does not know {listed(missing)}, and warns of pods that are right, or refuses them",
            advice=f"Add each scheduler name to {commands.NAMES}",
            command=commands.apply(snapshot),
        )


def _without_election(snapshot: Snapshot) -> Iterator[Finding]:
    for deployment in snapshot.ours:
        if "false" in deployment.values_of("--leader-elect"):
            yield error(
                "policy-without-election",
                f"Deployment {deployment.object.key} has --leader-elect=false, so the policy {LEADER} refuses its"
                " Bindings as soon as the Lease exists",
                advice="Remove the flag, or the policy's binding",
            )


def _binding_faults(snapshot: Snapshot, name: str, binding: Policy | None) -> Iterator[Finding]:
    """Yield why a policy does not act as it should: it is not bound, only warns, or reads another Lease."""
    if binding is None or binding.spec.get("policyName") != name:
        yield error(
            "policy-not-bound",
            f"The policy {name} has no binding of its name, so it does nothing",
            command=commands.apply(snapshot),
        )
        return
    actions = set(binding.spec.get("validationActions") or ())
    if name != NAME and "Deny" not in actions:
        yield error(
            "policy-denies-nothing",
            f"The binding of {name} only has the actions {listed(sorted(actions)) or 'none'}: {PURPOSES[name]}",
            command=commands.apply(snapshot),
        )
    if binding.spec.get("matchResources") and not (name == NAME and _without_placeholders(binding)):
        yield warning(
            "policy-bound-in-part",
            f"The binding of {name} has matchResources, so the policy is not in force everywhere",
            advice="Remove that field",
            command=commands.apply(snapshot),
        )
    if name == LEADER:
        param = binding.spec.get("paramRef") or {}
        lease = f"{param.get('namespace', '')}/{param.get('name', '')}"
        expected = f"{snapshot.namespace}/{snapshot.lease_name}"
        if lease != expected:
            yield error(
                "policy-for-another-lease",
                f"The policy {name} reads the Lease {lease}, not {expected}",
                command=commands.apply(snapshot),
            )
        if param.get("parameterNotFoundAction") != "Allow":
            yield error(
                "policy-denies-without-lease",
                f"The binding of {name} refuses every Binding of all schedulers while there is no Lease"
                " (parameterNotFoundAction is not Allow)",
                command=commands.apply(snapshot),
            )


def _without_placeholders(binding: Policy) -> bool:
    """Return whether a binding leaves out the namespace of the placeholders only, as components/capacity-requests."""
    resources = binding.spec.get("matchResources")
    if not isinstance(resources, Mapping):
        return False
    others = ("objectSelector", "resourceRules", "excludeResourceRules")
    left_out = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [CAPACITY]}
    selector = resources.get("namespaceSelector")
    return selector == {"matchExpressions": [left_out]} and not any(resources.get(part) for part in others)


def _keeper(policies: Mapping[str, Policy], bindings: Mapping[str, Policy]) -> Iterator[Finding]:
    if KEEPER not in policies or KEEPER not in bindings:
        yield warning(
            "keeper-missing",
            f"The policy {KEEPER} or its binding is missing",
            advice="Without it, every Binding is refused after the scheduler is removed and installed again, until"
            " kube-apiserver restarts",
            command=commands.KEEPER,
        )


FREE: Final = ("writers", "names")
"""Variables whose lists the person who installs the policy may change."""
_PARTS: Final = ("failurePolicy", "paramKind", "matchConstraints", "matchConditions", "variables", "validations")
_DIGESTS: Final = {
    "neuron-scheduler-allocations": "21795faf6eb3 74234e98afe7 9a63cbfac96b 2c297c57661b 44dbcfebacfb 57f714eb94bd",
    "neuron-scheduler-leader": "21795faf6eb3 8516e108a361 d86cf12d9285 6a4686f4b271 4f53cda18c2b f12e1c233a1a",
    "neuron-scheduler-node-name": "21795faf6eb3 74234e98afe7 0de1ad78e7c6 b6095c99abf7 4f53cda18c2b e7e922e7ff34",
    "neuron-scheduler-name": "21795faf6eb3 74234e98afe7 0de1ad78e7c6 d0f5c1851f66 4f53cda18c2b d5fd12db32c6",
}
EXPECTED: Final = {name: dict(zip(_PARTS, text.split(), strict=True)) for name, text in _DIGESTS.items()}
"""A digest of each part of each policy."""

_ACCOUNT: Final = re.compile(r"system:serviceaccount:[a-z0-9-]+:[a-z0-9.-]+")
_STRING: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"")


def digests(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest of each part of a policy's `spec`."""
    return {name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in _texts(spec).items()}


def _texts(spec: Mapping[str, Any]) -> dict[str, str]:
    rules = (spec.get("matchConstraints") or {}).get("resourceRules") or []
    parts = {
        "failurePolicy": spec.get("failurePolicy") or "Fail",
        "paramKind": spec.get("paramKind"),
        "matchConstraints": [
            [sorted(rule.get(field) or []) for field in ("apiGroups", "apiVersions", "operations", "resources")]
            for rule in rules
        ],
        "matchConditions": [_plain(each) for each in spec.get("matchConditions") or []],
        "variables": [
            [each.get("name"), _plain(each)] for each in spec.get("variables") or [] if each.get("name") not in FREE
        ],
        "validations": [[_plain(each), each.get("reason")] for each in spec.get("validations") or []],
    }
    return {name: json.dumps(part, sort_keys=True) for name, part in parts.items()}


def _plain(part: Mapping[str, Any]) -> str:
    """Return the expression of a part with single blanks, and with one word for each account."""
    return _ACCOUNT.sub("ACCOUNT", " ".join(str(part.get("expression", "")).split()))


def strings_of(spec: Mapping[str, Any], variable: str) -> tuple[str, ...]:
    """Return the strings of the list that a variable is; empty if there is none."""
    for each in spec.get("variables") or []:
        if each.get("name") == variable:
            return tuple(single or double for single, double in _STRING.findall(str(each.get("expression", ""))))
    return ()


def writers_of(snapshot: Snapshot) -> tuple[str, ...] | None:
    """Return the users that may write allocations; None without the policy."""
    return next(
        (strings_of(policy.spec, "writers") for policy in snapshot.policies if policy.object.name == ALLOCATIONS), None
    )


def accounts(spec: Mapping[str, Any]) -> frozenset[str]:
    """Return the user names of ServiceAccounts for which a policy is, `writers` left out."""
    expressions = [
        str(each.get("expression", ""))
        for part in ("matchConditions", "variables", "validations")
        for each in spec.get(part) or []
        if part != "variables" or each.get("name") not in FREE
    ]
    return frozenset(_ACCOUNT.findall(" ".join(expressions)))

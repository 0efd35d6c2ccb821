"""
The admission policies: each policy and its binding are what this version installs, or a finding says what differs.

Without them nothing stops two schedulers, or users, from giving one device to two pods. Decisions 3 and 8 say why each
exists.

The API server adds defaults, and a person may write other `writers` and `names`. So these are taken out before a policy
is compared with that of this version, whose texts `EXPECTED` has as digests: the manifests are not part of the program.
`tests/commands/check/subjects/test_policies.py` compares them with `manifests/`, and prints new ones.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from neuron_scheduler.commands.check.subjects import commands, known
from neuron_scheduler.commands.check.subjects.finding import Finding, error, note, ok, unknown, warning
from neuron_scheduler.commands.check.subjects.known import ALLOCATIONS, KEEPER, LEADER, NAME, NODE_NAME, POLICIES
from neuron_scheduler.commands.check.subjects.snapshot import Snapshot, Unread
from neuron_scheduler.model.wording import list_of

PURPOSES: Final = {
    LEADER: "an old leader's Bindings are not refused",
    ALLOCATIONS: "any user can write the annotations that say which devices a pod has",
    NODE_NAME: "pods can take devices on a node that they name themselves",
    NAME: "nobody is warned of pods without our scheduler name",
    known.CLAIMS: "kube-scheduler can give devices to claims that other claims have",
}
Spec = Mapping[str, Any]
FREE: Final = ("writers", "names")
"""Variables whose lists the person who installs the policy may change."""
_PARTS: Final = ("failurePolicy", "paramKind", "matchConstraints", "matchConditions", "variables", "validations")
_DIGESTS: Final = {
    "neuron-scheduler-allocations": "21795faf6eb3 74234e98afe7 9a63cbfac96b 2c297c57661b 44dbcfebacfb 57f714eb94bd",
    "neuron-scheduler-leader": "21795faf6eb3 8516e108a361 d86cf12d9285 6a4686f4b271 4f53cda18c2b f12e1c233a1a",
    "neuron-scheduler-node-name": "21795faf6eb3 74234e98afe7 0de1ad78e7c6 b6095c99abf7 4f53cda18c2b e7e922e7ff34",
    "neuron-scheduler-name": "21795faf6eb3 74234e98afe7 0de1ad78e7c6 d0f5c1851f66 4f53cda18c2b d5fd12db32c6",
    "neuron-scheduler-claims": "21795faf6eb3 74234e98afe7 d2c68eef7812 03ac18c167c7 29fc112b14fe 171ea61d90d9",
}
EXPECTED: Final = {name: dict(zip(_PARTS, text.split(), strict=True)) for name, text in _DIGESTS.items()}
"""A digest of each part of each policy."""
_STRING: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"")


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the first fault of each policy, and whether the keeper of the watch is there."""
    policies, bindings = snapshot.policies, snapshot.policy_bindings
    if isinstance(policies, Unread) or isinstance(bindings, Unread):
        yield unknown(
            "policies-unknown", "Admission policies are", policies if isinstance(policies, Unread) else bindings
        )
        return
    if not (snapshot.ours or policies.keys() & set(POLICIES)):
        kept = f"; {KEEPER} is there, and is to stay" if KEEPER in policies else ""
        yield note("policies-not-installed", f"The admission policies are not installed{kept}")
        return
    expected = (*POLICIES, known.CLAIMS) if snapshot.has_claims else POLICIES
    faults = [fault for name in expected if (fault := _fault(snapshot, name, policies.get(name), bindings.get(name)))]
    yield from faults
    if KEEPER not in policies or KEEPER not in bindings:
        yield warning(
            "keeper-missing",
            f"The policy {KEEPER} or its binding is missing",
            advice="Without it, every Binding is refused after the scheduler is removed and installed again, until"
            " kube-apiserver restarts",
            command=commands.KEEPER,
        )
    if not faults:
        yield ok("policies", f"All {len(expected)} policies are those of version {snapshot.program_version}, and bound")


def _fault(snapshot: Snapshot, name: str, policy: Spec | None, binding: Spec | None) -> Finding | None:
    command = commands.apply(snapshot)
    if policy is None:
        return warning("policy-missing", f"The policy {name} is missing: {PURPOSES[name]}", command=command)
    if binding is None:
        message = f"The policy {name} has no binding of its name, so it does nothing: {PURPOSES[name]}"
        if name == LEADER:
            kept = "If it was deleted because of a stale fence, leave it so until the control plane has been renewed"
            return error("policy-not-bound", message, advice=f"{kept}. Otherwise: {command}")
        return error("policy-not-bound", message, command=command)
    unlike = [part for part, value in _expected_binding(name).items() if (binding.get(part) or None) != value]
    if unlike:
        return error(
            "policy-not-bound",
            f"The binding of {name} is not that of version {snapshot.program_version}, so the policy refuses too little"
            f" or too much: its {list_of(unlike)} differ",
            command=command,
        )
    found = digests(policy, known.USERNAME)
    differing = [part for part, digest in EXPECTED[name].items() if found[part] != digest]
    advice = "If you have changed it yourself, compare it with the manifest"
    if name == NAME and not set(snapshot.scheduler_names).issubset(strings_of(policy, "names")):
        differing.append("names")
        advice = f"Write {list_of(snapshot.scheduler_names)} into {commands.NAMES}"
    if differing:
        return warning(
            "policy-stale",
            f"The policy {name} is not that of version {snapshot.program_version}: its {list_of(differing)} differ",
            advice=advice,
            command=command,
        )
    return None


def _expected_binding(name: str) -> Spec:
    """
    Return what a binding has to have; the rest of it is free.

    The policy on names only warns: a person may let it refuse, and leave out namespaces, as two of our components do.
    """
    if name == NAME:
        return {"policyName": name}
    lease = {"name": known.LEASE, "namespace": known.NAMESPACE, "parameterNotFoundAction": "Allow"}
    return {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": None,
        "paramRef": lease if name == LEADER else None,
    }


def digests(spec: Spec, account: str) -> dict[str, str]:
    return {name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in _texts(spec, account).items()}


def _texts(spec: Spec, account: str) -> dict[str, str]:
    constraints = spec.get("matchConstraints") or {}
    rules = constraints.get("resourceRules") or []
    narrowing = ("namespaceSelector", "objectSelector", "excludeResourceRules")  # of which ours have none
    parts = {
        "failurePolicy": spec.get("failurePolicy") or "Fail",
        "paramKind": spec.get("paramKind"),
        "matchConstraints": [
            [sorted(rule.get(field) or []) for field in ("apiGroups", "apiVersions", "operations", "resources")]
            for rule in rules
        ]
        + [[field, constraints[field]] for field in narrowing if constraints.get(field)],
        "matchConditions": [_plain(each) for each in spec.get("matchConditions") or []],
        "variables": [
            [each.get("name"), _plain(each)] for each in spec.get("variables") or [] if each.get("name") not in FREE
        ],
        "validations": [[_plain(each), each.get("reason")] for each in spec.get("validations") or []],
    }
    return {name: json.dumps(part, sort_keys=True).replace(account, "ACCOUNT") for name, part in parts.items()}


def _plain(part: Spec) -> str:
    return " ".join(str(part.get("expression", "")).split())


def strings_of(spec: Spec, variable: str) -> tuple[str, ...]:
    """Return the strings of the list that a variable is; empty if there is none."""
    for each in spec.get("variables") or []:
        if each.get("name") == variable:
            return tuple(single or double for single, double in _STRING.findall(str(each.get("expression", ""))))
    return ()


def writers_of(snapshot: Snapshot) -> tuple[str, ...] | None:
    policies = snapshot.policies
    if isinstance(policies, Unread) or ALLOCATIONS not in policies:
        return None
    return strings_of(policies[ALLOCATIONS], "writers")

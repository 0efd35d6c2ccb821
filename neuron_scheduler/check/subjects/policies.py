"""
The admission policies: there, as this version expects them, for the account that the scheduler has, and bound.

Without them nothing stops two schedulers, or users, from giving one device to two pods. Decisions 3 and 8 say why each
exists. A policy of an older version for another account refuses our Bindings.
"""

from collections.abc import Iterator, Mapping

from neuron_scheduler.check.subjects import commands
from neuron_scheduler.check.subjects.finding import Finding, Severity, error, note, ok, warning
from neuron_scheduler.check.subjects.known import ALLOCATIONS, CAPACITY, KEEPER, LEADER, NAME, NODE_NAME, POLICIES
from neuron_scheduler.check.subjects.policy_parts import EXPECTED, accounts, digests, strings_of
from neuron_scheduler.check.subjects.snapshot import Policy, Snapshot, Unread
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
            yield Finding("policies-unknown", Severity.UNCHECKED, f"Admission policies are not known: {unread}")
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
    return {} if isinstance(policies, Unread) else {policy.object.name: policy for policy in policies}


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
        if deployment.has_flag("--leader-elect", "false"):
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

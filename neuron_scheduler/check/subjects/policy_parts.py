"""
What decides in an admission policy, as one text for each part, whatever a person may write in it.

The API server adds defaults, and a person may write other accounts, `writers` and `names`. So these are taken out
before a policy is compared with that of this version, whose texts `EXPECTED` has as digests: the manifests are not part
of the program. `tests/check/subjects/test_policy_parts.py` compares them with `manifests/`, and prints the new ones.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

FREE: Final = ("writers", "names")
"""Variables whose lists the person who installs the policy may change."""
EXPECTED: Final[Mapping[str, Mapping[str, str]]] = {
    "neuron-scheduler-allocations": {
        "failurePolicy": "21795faf6eb3",
        "paramKind": "74234e98afe7",
        "matchConstraints": "9a63cbfac96b",
        "matchConditions": "2c297c57661b",
        "variables": "44dbcfebacfb",
        "validations": "57f714eb94bd",
    },
    "neuron-scheduler-leader": {
        "failurePolicy": "21795faf6eb3",
        "paramKind": "8516e108a361",
        "matchConstraints": "d86cf12d9285",
        "matchConditions": "6a4686f4b271",
        "variables": "4f53cda18c2b",
        "validations": "f12e1c233a1a",
    },
    "neuron-scheduler-node-name": {
        "failurePolicy": "21795faf6eb3",
        "paramKind": "74234e98afe7",
        "matchConstraints": "0de1ad78e7c6",
        "matchConditions": "b6095c99abf7",
        "variables": "4f53cda18c2b",
        "validations": "e7e922e7ff34",
    },
    "neuron-scheduler-name": {
        "failurePolicy": "21795faf6eb3",
        "paramKind": "74234e98afe7",
        "matchConstraints": "0de1ad78e7c6",
        "matchConditions": "d0f5c1851f66",
        "variables": "4f53cda18c2b",
        "validations": "d5fd12db32c6",
    },
}

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


def accounts(spec: Mapping[str, Any]) -> frozenset[str]:
    """Return the user names of ServiceAccounts for which a policy is, `writers` left out."""
    expressions = [
        str(each.get("expression", ""))
        for part in ("matchConditions", "variables", "validations")
        for each in spec.get(part) or []
        if part != "variables" or each.get("name") not in FREE
    ]
    return frozenset(_ACCOUNT.findall(" ".join(expressions)))

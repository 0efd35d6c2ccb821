"""`manifests/chart/values.schema.json` has the program's settings; no helm is needed."""

import json
from collections.abc import Mapping
from typing import Any

import attrs

from neuron_scheduler.model.wording import camel
from neuron_scheduler.scheduling.plugins.registry import PREFERENCES
from neuron_scheduler.settings.config import OF_A_PROFILE, settings
from neuron_scheduler.settings.config_file import PATHS
from neuron_scheduler.settings.profile_config import CapacityRequests, path_of
from neuron_scheduler.settings.setting import duration
from tests.support.helm import CHART

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
# Settings that the chart decides itself: the API server's address and the Lease, which the policies and the Role name
# too, and ports and certificates, which the Deployment's ports, probes and volumes belong to.
WITHHELD = {
    "kubeconfig",
    "master",
    "leader_elect",
    "leader_elect_resource_name",
    "leader_elect_resource_namespace",
    "bind_address",
    "port",
    "secure_port",
    "tls_cert_file",
    "tls_private_key_file",
    "authorize_metrics",
    "answer_questions",
    "serve_page",
    "claims",
    "extender_bind_address",
    "extender_tls_cert_file",
    "extender_tls_private_key_file",
    "extender_client_ca_file",
}


def test_the_schema_has_every_value_and_every_setting() -> None:
    """A new setting is in the schema's `config`, or in WITHHELD here because the chart decides it."""
    properties = SCHEMA["properties"]["config"]["properties"]
    profile = properties["profiles"]["items"]["properties"]
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string"}
    for field in settings():
        if field.name in WITHHELD:
            continue
        found, path = (profile, camel(field.name)) if field.name in OF_A_PROFILE else (properties, PATHS[field.name])
        *groups, last = path.split(".")
        for group in groups:
            found = found[group]["properties"]
        rule = found.pop(last)
        if field.metadata["parse"] is duration:
            assert rule == {"$ref": "#/definitions/duration"}, path
        elif "enum" in rule:
            assert not any(field.metadata["check"](value) for value in rule["enum"]), path
        elif "$ref" not in rule:
            assert rule == {"type": kinds[type(field.default)]}, path
    assert profile.pop("preferences")["items"]["enum"] == list(PREFERENCES)
    group = profile.pop("capacityRequests")["properties"]
    for asking in attrs.fields(CapacityRequests):
        rule = group.pop(path_of(asking))
        if asking.metadata["parse"] is duration:
            assert rule == {"$ref": "#/definitions/duration"}
        elif "enum" in rule:
            assert not any(asking.metadata["check"](value) for value in rule["enum"])
        else:
            assert rule == {"type": kinds[type(asking.default)]}
    assert group == {}
    del properties["profiles"]
    left = [*profile, *(name for name, rule in properties.items() if rule.get("properties", "none"))]
    assert left == [], "no setting has this place in the file"


def strict(rule: Mapping[str, Any]) -> bool:
    """Return whether a schema refuses unknown values where it lists the known ones."""
    within = [*rule.get("properties", {}).values(), *([rule["items"]] if "items" in rule else [])]
    return (not rule.get("properties") or rule.get("additionalProperties") is False) and all(map(strict, within))


def test_the_schema_is_strict_everywhere() -> None:
    """So a typo is an error at every depth."""
    assert strict(json.loads((CHART / "values.schema.json").read_text()))

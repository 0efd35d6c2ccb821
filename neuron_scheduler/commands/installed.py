"""
What is installed in a cluster that a command reads: the profiles of its configuration, and whether a replica leads.

What the person may not read, or has another form, is left out: the answers need only nodes and pods.
"""

import datetime as dt
import time
from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.settings import config_file
from neuron_scheduler.settings.config import Config
from neuron_scheduler.settings.profiles import profiles_of
from neuron_scheduler.telemetry.errors import ApiError, ConfigurationError, UnreachableError

NAMESPACE: Final = "kube-system"
LEASE: Final = "my-scheduler"
LEASE_PATH: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}"
NOT_FOUND: Final = 404
NEVER_LED: Final = (
    f"No replica has ever led, so nothing is scheduled: there is no Lease {NAMESPACE}/{LEASE}. See `check`."
)
OUR_LABEL: Final = "app.kubernetes.io/name%3Dneuron-scheduler"
WITHIN: Final = 10.0  # seconds for a request


@attrs.frozen
class Installed:
    """
    What the scheduler's own objects say.

    Attributes:
        profiles: by scheduler name; empty if there are none, or if they cannot be read.
        leaderless: a sentence if nobody holds the Lease; empty if somebody does, or if that is not known: without a
            Deployment of ours, a replica without election may run.
        claims: whether pods with claims on devices are served.
    """

    profiles: dict[str, Profile]
    leaderless: str = ""
    claims: bool = False


async def read_installed(client: Client) -> Installed:
    deployments = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments?labelSelector={OUR_LABEL}"
    found = await _get(client, deployments)
    specs = [each["spec"]["template"]["spec"] for each in found.get("items") or ()]
    config = await _config(client, specs[0]) if len(specs) == 1 else None  # of two it is not known which one decides
    profiles = {} if config is None else profiles_of(config)
    words = [word for spec in specs for container in spec["containers"] for word in container.get("args") or ()]
    claims = "--claims" in words or "--claims=true" in words or (config is not None and config.claims)
    if "--leader-elect=false" in words or not (config or Config()).leader_elect:
        return Installed(profiles, claims=claims)
    try:
        answer = await client.request("GET", LEASE_PATH, timeout=WITHIN)
        reason = _not_held(msgspec.json.decode(answer.body, type=dict[str, Any])["spec"])
    except ApiError as error:
        return Installed(profiles, NEVER_LED if specs and error.status == NOT_FOUND else "", claims)
    except (UnreachableError, msgspec.MsgspecError, ValueError, KeyError):
        return Installed(profiles, claims=claims)
    sentence = f"No replica leads, so nothing is scheduled: the Lease {NAMESPACE}/{LEASE} {reason}. See `check`."
    return Installed(profiles, sentence if reason else "", claims)


def _not_held(spec: Mapping[str, Any]) -> str:
    """Return why nobody holds the Lease; empty if somebody does. It ends after twice its duration: clocks differ."""
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    if not holder:
        return "is held by nobody"
    age = time.time() - dt.datetime.fromisoformat(renewed).timestamp() if renewed else 0.0
    expired = age > 2 * max(spec.get("leaseDurationSeconds") or 0, 1)
    return f"was last renewed {age:.0f} s ago, by {holder}" if expired else ""


async def _config(client: Client, spec: Mapping[str, Any]) -> Config | None:
    """Return the first configuration in the ConfigMaps that the pods mount."""
    for name in [each["configMap"]["name"] for each in spec.get("volumes") or () if "configMap" in each]:
        found = await _get(client, f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}")
        for text in (found.get("data") or {}).values():
            try:
                return Config(**config_file.parse(name, text).values)
            except ConfigurationError:  # another file, or of another version
                continue
    return None


async def _get(client: Client, path: str) -> dict[str, Any]:
    """Return an object; empty if it is absent, may not be read, or is none."""
    try:
        answer = await client.request("GET", path, timeout=WITHIN)
        return msgspec.json.decode(answer.body, type=dict[str, Any])
    except (ApiError, UnreachableError, msgspec.MsgspecError, ValueError):
        return {}

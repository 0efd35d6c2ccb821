"""
The configuration file of kube-scheduler (`KubeSchedulerConfiguration`), as AWS's my-scheduler has it in its ConfigMap.

It is accepted for its names, Lease, client and backoff (`staging/src/k8s.io/kube-scheduler/config/v1`). Other fields of
kube-scheduler are taken out and named to the caller; fields that kube-scheduler does not know are refused.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import attrs
import msgspec

from neuron_scheduler.settings.file_format import PATHS, format_of
from neuron_scheduler.settings.profile_config import ProfileConfig

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"

EFFECTIVE: Final = frozenset(
    {
        "clientConnection.kubeconfig",
        "clientConnection.qps",
        "clientConnection.burst",
        "leaderElection.leaderElect",
        "leaderElection.leaseDuration",
        "leaderElection.renewDeadline",
        "leaderElection.retryPeriod",
        "leaderElection.resourceName",
        "leaderElection.resourceNamespace",
        "podInitialBackoffSeconds",
        "podMaxBackoffSeconds",
    }
)
"""Fields that mean the same here, beside scheduler names and `bindTimeoutSeconds` of VolumeBinding."""

IGNORED: Final = (
    "parallelism",
    "enableProfiling",
    "enableContentionProfiling",
    "percentageOfNodesToScore",
    "extenders",
    "delayCacheUntilActive",
    "leaderElection.resourceLock",
    "clientConnection.contentType",
    "clientConnection.acceptContentTypes",
    "profiles[].percentageOfNodesToScore",
    "profiles[].plugins",
)
"""Fields that have no effect here. Neither has `pluginConfig`, except for VolumeBinding."""


class _VolumeBindingArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    api_version: str = API_VERSION
    kind: Literal["VolumeBindingArgs"] = "VolumeBindingArgs"
    bind_timeout_seconds: Annotated[int, msgspec.Meta(ge=0, le=86400)] = 600


class _VolumeBinding(msgspec.Struct, forbid_unknown_fields=True):
    name: Literal["VolumeBinding"]
    args: _VolumeBindingArgs = msgspec.field(default_factory=_VolumeBindingArgs)


class _Profile(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    scheduler_name: str
    plugin_config: list[_VolumeBinding] = []

    def config(self) -> ProfileConfig:
        """Return what the profile sets."""
        config = ProfileConfig(scheduler_name=self.scheduler_name)
        for plugin in self.plugin_config[:1]:
            config = attrs.evolve(config, volume_bind_timeout=float(plugin.args.bind_timeout_seconds))
        return config


FORMAT: Final = format_of({name: path for name, path in PATHS.items() if path in EFFECTIVE}, _Profile, optional=False)
"""The struct of a file, without the fields that have no effect."""


def require_profiles(fields: dict[str, Any]) -> None:
    """
    Check that there are profiles.

    kube-scheduler would serve the pods of `default-scheduler` without them. That is a mistake here: these are the pods
    of the cluster's own scheduler, and both would bind them.

    Raises:
        ValueError: there are none; says what to write.
    """
    if fields.get("profiles") in (None, []):
        raise ValueError(
            "there are no profiles, so it is not said which pods are for this scheduler (kube-scheduler would take"
            " those of default-scheduler); write profiles: [{schedulerName: my-scheduler}]"
        )


def take_out_ignored(fields: dict[str, Any]) -> Iterator[str]:
    """
    Remove the fields that have no effect, and yield their paths.

    `resourceLock: leases` is removed silently: a Lease is the lock here too.
    """
    profiles = fields.get("profiles")
    parents: dict[str, list[tuple[str, object]]] = {
        "": [("", fields)],
        "leaderElection": [("leaderElection.", fields.get("leaderElection"))],
        "clientConnection": [("clientConnection.", fields.get("clientConnection"))],
        "profiles[]": [(f"profiles[{i}].", p) for i, p in enumerate(profiles if isinstance(profiles, list) else ())],
    }
    for path in IGNORED:
        parent, _, name = path.rpartition(".")
        for where, group in parents[parent]:
            if isinstance(group, dict) and name in group and (group.pop(name), name) != ("leases", "resourceLock"):
                yield f"{where}{name}"
    for where, profile in parents["profiles[]"]:
        if isinstance(profile, dict):
            yield from (f"{where}pluginConfig{path}" for path in _take_out_plugins(profile))


def _take_out_plugins(profile: dict[str, Any]) -> Iterator[str]:
    """Remove from `pluginConfig` everything except VolumeBinding's timeout, and yield the paths below it."""
    plugins = profile.get("pluginConfig")
    if not isinstance(plugins, list):
        return
    profile["pluginConfig"] = kept = []
    for i, plugin in enumerate(plugins):
        name = plugin.get("name") if isinstance(plugin, dict) else None
        if isinstance(name, str) and name != "VolumeBinding":
            yield f"[{i}] ({name})"
        else:
            kept.append(plugin)
            if isinstance(plugin, dict) and isinstance(plugin.get("args"), dict) and plugin["args"].pop("shape", None):
                yield f"[{i}].args.shape"

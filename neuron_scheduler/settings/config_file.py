"""
Settings from a file: what `--config` names, read strictly and told exactly.

Our own kind has every setting, and several profiles. A `KubeSchedulerConfiguration`, as AWS's my-scheduler has it in
its ConfigMap, is accepted for what it says about names, Lease, client and backoff; what else it may hold is named to
the caller and has no effect. Refuses what neither of the two knows: a misspelt field that is silently skipped would be
found out too late. Only reads; `Config` judges the values.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import attrs
import msgspec
import yaml
from msgspec import UNSET, UnsetType

from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.scheduling.cycle.profile import PREFERENCES
from neuron_scheduler.settings.config import VOLUME_BIND_TIMEOUT, ProfileConfig, duration, flag

API_VERSION: Final = "neuron-scheduler/v1"
KIND: Final = "NeuronSchedulerConfiguration"
OLD_API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
OLD_KIND: Final = "KubeSchedulerConfiguration"

PATHS: Final[Mapping[str, str]] = {
    "kubeconfig": "clientConnection.kubeconfig",
    "master": "clientConnection.master",
    "kube_api_qps": "clientConnection.qps",
    "kube_api_burst": "clientConnection.burst",
    "own_http": "clientConnection.ownHttp",
    "leader_elect": "leaderElection.leaderElect",
    "leader_elect_lease_duration": "leaderElection.leaseDuration",
    "leader_elect_renew_deadline": "leaderElection.renewDeadline",
    "leader_elect_retry_period": "leaderElection.retryPeriod",
    "leader_elect_resource_name": "leaderElection.resourceName",
    "leader_elect_resource_namespace": "leaderElection.resourceNamespace",
    "bind_address": "bindAddress",
    "port": "port",
    "secure_port": "securePort",
    "tls_cert_file": "tlsCertFile",
    "tls_private_key_file": "tlsPrivateKeyFile",
    "authorize_metrics": "authorizeMetrics",
    "v": "verbosity",
    "logging_format": "loggingFormat",
    "pod_initial_backoff_seconds": "podInitialBackoffSeconds",
    "pod_max_backoff_seconds": "podMaxBackoffSeconds",
    "pod_max_in_unschedulable_pods_duration": "podMaxInUnschedulablePodsDuration",
    "bind_concurrency": "bindConcurrency",
    "allocate_fence": "allocateFence",
    "shutdown_grace_period": "shutdownGracePeriod",
}
"""Where each field of `Config` stands in the file, but for `OF_A_PROFILE`, which stand in the profiles."""

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
"""
Fields of kube-scheduler's own kind that mean nothing here (`staging/src/k8s.io/kube-scheduler/config/v1`).

Neither does `pluginConfig`, but for `bindTimeoutSeconds` of VolumeBinding.
"""

_FLAG: Final = re.compile(r"--([a-z][a-z-]*)")


class _Seconds(float):
    """A Go duration in the file."""

    __slots__ = ()


class _PreferenceName(str):
    """One of `PREFERENCES` in the file."""

    __slots__ = ()


class _LeaderElection(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    leader_elect: bool | UnsetType = UNSET
    lease_duration: _Seconds | UnsetType = UNSET
    renew_deadline: _Seconds | UnsetType = UNSET
    retry_period: _Seconds | UnsetType = UNSET
    resource_name: str | UnsetType = UNSET
    resource_namespace: str | UnsetType = UNSET


class _ClientConnection(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    kubeconfig: str | UnsetType = UNSET
    master: str | UnsetType = UNSET
    qps: float | UnsetType = UNSET
    burst: int | UnsetType = UNSET
    own_http: bool | UnsetType = UNSET


class _OldClientConnection(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    kubeconfig: str | UnsetType = UNSET
    qps: float | UnsetType = UNSET
    burst: int | UnsetType = UNSET


class _Profile(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    scheduler_name: str
    preferences: list[_PreferenceName] | None = None
    unknown_allocations: str = "pessimistic"
    volume_bind_timeout: _Seconds = _Seconds(VOLUME_BIND_TIMEOUT)

    def __post_init__(self) -> None:
        names = self.preferences or []
        twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
        if twice is not None:
            raise ValueError(f"preference {twice!r} stands there twice; an order has each once")


class _VolumeBindingArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    api_version: str = OLD_API_VERSION
    kind: Literal["VolumeBindingArgs"] = "VolumeBindingArgs"
    bind_timeout_seconds: Annotated[int, msgspec.Meta(ge=0, le=86400)] = int(VOLUME_BIND_TIMEOUT)


class _VolumeBinding(msgspec.Struct, forbid_unknown_fields=True):
    name: Literal["VolumeBinding"]
    args: _VolumeBindingArgs = msgspec.field(default_factory=_VolumeBindingArgs)


class _OldProfile(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    scheduler_name: str
    plugin_config: list[_VolumeBinding] = []


class _Configuration(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    profiles: list[_Profile] | UnsetType = UNSET
    leader_election: _LeaderElection | UnsetType = UNSET
    client_connection: _ClientConnection | UnsetType = UNSET
    bind_address: str | UnsetType = UNSET
    port: int | UnsetType = UNSET
    secure_port: int | UnsetType = UNSET
    tls_cert_file: str | UnsetType = UNSET
    tls_private_key_file: str | UnsetType = UNSET
    authorize_metrics: bool | UnsetType = UNSET
    verbosity: int | UnsetType = UNSET
    logging_format: str | UnsetType = UNSET
    pod_initial_backoff_seconds: float | UnsetType = UNSET
    pod_max_backoff_seconds: float | UnsetType = UNSET
    pod_max_in_unschedulable_pods_duration: _Seconds | UnsetType = UNSET
    bind_concurrency: int | UnsetType = UNSET
    allocate_fence: bool | UnsetType = UNSET
    shutdown_grace_period: _Seconds | UnsetType = UNSET


class _OldConfiguration(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    profiles: list[_OldProfile]
    leader_election: _LeaderElection | UnsetType = UNSET
    client_connection: _OldClientConnection | UnsetType = UNSET
    pod_initial_backoff_seconds: float | UnsetType = UNSET
    pod_max_backoff_seconds: float | UnsetType = UNSET


@attrs.frozen
class ConfigFile:
    """
    What a file says.

    Attributes:
        values: fields of `Config` that it sets.
        ignored: paths of fields that it sets and that have no effect.
    """

    path: str
    values: Mapping[str, Any]
    ignored: tuple[str, ...] = ()

    def in_its_words(self, complaint: str, overridden: frozenset[str]) -> str:
        """Return a complaint of `Config` with fields of the file in the place of the flags that nobody gave."""
        here = {flag(name): PATHS[name] for name in self.values if name in PATHS and name not in overridden}
        told = _FLAG.sub(lambda found: here.get(found[0], found[0]), complaint)
        return told if told == complaint and "--" in complaint else f"{self.path}: {told}"


def read(path: str) -> ConfigFile:
    """
    Read a configuration file.

    Raises:
        ConfigurationError: it cannot be read, or holds what nobody understands; says where.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--config: {path} cannot be read: {error}") from None
    try:
        return _parsed(path, text)
    except (msgspec.MsgspecError, yaml.YAMLError, ValueError) as error:
        raise ConfigurationError(f"{path}: {' '.join(str(error).replace('`$.', '`').split())}") from None


def _parsed(path: str, text: str) -> ConfigFile:
    _require_single_keys(yaml.compose(text, Loader=yaml.CSafeLoader))
    found = msgspec.yaml.decode(text.encode())
    if not isinstance(found, dict):
        raise ValueError(f"expected apiVersion: {API_VERSION} and kind: {KIND}, got no fields at all")  # noqa: TRY004 - about a file
    ignored: tuple[str, ...] = ()
    kind: type[_Configuration | _OldConfiguration]
    match found.get("apiVersion"), found.get("kind"):
        case (str(version), str(name)) if (version, name) == (API_VERSION, KIND):
            kind = _Configuration
        case (str(version), str(name)) if (version, name) == (OLD_API_VERSION, OLD_KIND):
            kind = _OldConfiguration
            ignored = tuple(_taken_out(found))
        case (str(version), name) if version.startswith(f"{OLD_API_VERSION}beta"):
            raise ValueError(
                f"apiVersion {version} is no longer read, by kube-scheduler neither; write {OLD_API_VERSION}"
            )
        case version, name:
            raise ValueError(
                f"apiVersion {version!r}, kind {name!r} is not known here;"
                f" write {API_VERSION}, {KIND} or {OLD_API_VERSION}, {OLD_KIND}"
            )
    configuration = msgspec.convert(found, kind, dec_hook=_custom)
    return ConfigFile(path, dict(_values(configuration)), ignored)


def _values(configuration: _Configuration | _OldConfiguration) -> Iterator[tuple[str, Any]]:
    for name, path in PATHS.items():
        value: Any = configuration
        for step in path.split("."):
            value = getattr(value, _snake(step), UNSET)
        if value is not UNSET:
            yield name, float(value) if isinstance(value, _Seconds) else value
    if not isinstance(configuration.profiles, UnsetType):
        yield "profiles", tuple(map(_profile, configuration.profiles))


def _profile(profile: _Profile | _OldProfile) -> ProfileConfig:
    if isinstance(profile, _OldProfile):
        return ProfileConfig(
            scheduler_name=profile.scheduler_name,
            volume_bind_timeout=next(
                (float(plugin.args.bind_timeout_seconds) for plugin in profile.plugin_config), VOLUME_BIND_TIMEOUT
            ),
        )
    names = profile.preferences
    return ProfileConfig(
        scheduler_name=profile.scheduler_name,
        preferences=None if names is None else tuple(map(str, names)),
        unknown_allocations=profile.unknown_allocations,
        volume_bind_timeout=float(profile.volume_bind_timeout),
    )


def _custom(wanted: type, found: object) -> object:
    """Read what YAML has no type for; msgspec adds to a complaint where it is."""
    if wanted is _Seconds:
        if not isinstance(found, str):
            raise ValueError(f"{found!r} is not a duration; write 15s, 1m30s or 500ms")
        return _Seconds(duration(found))
    if wanted is _PreferenceName and found not in PREFERENCES:
        meant = difflib.get_close_matches(str(found), PREFERENCES, n=1)
        remedy = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(PREFERENCES)}"
        raise ValueError(f"there is no preference {found!r}; {remedy}")
    return wanted(found)


def _taken_out(found: dict[str, Any]) -> Iterator[str]:
    """Remove the fields that have no effect, and yield where each was; a Lease is the lock here as there."""
    profiles = found.get("profiles")
    parents: dict[str, list[tuple[str, object]]] = {
        "": [("", found)],
        "leaderElection": [("leaderElection.", found.get("leaderElection"))],
        "clientConnection": [("clientConnection.", found.get("clientConnection"))],
        "profiles[]": [(f"profiles[{i}].", p) for i, p in enumerate(profiles if isinstance(profiles, list) else ())],
    }
    for path in IGNORED:
        parent, _, name = path.rpartition(".")
        for where, fields in parents[parent]:
            if isinstance(fields, dict) and name in fields and (fields.pop(name), name) != ("leases", "resourceLock"):
                yield f"{where}{name}"
    for where, profile in parents["profiles[]"]:
        if isinstance(profile, dict):
            yield from (f"{where}pluginConfig{path}" for path in _plugins_taken_out(profile))


def _plugins_taken_out(profile: dict[str, Any]) -> Iterator[str]:
    """Remove from `pluginConfig` all but what VolumeBinding's says of the time it may take."""
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


def _require_single_keys(root: yaml.Node | None) -> None:
    """Refuse a key that stands twice in one place, of which YAML's reader would silently take the last."""
    todo, done = [root], set[int]()
    while todo:
        node = todo.pop()
        if id(node) in done:
            continue  # an alias, which may even contain itself
        done.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for i, key in enumerate(keys):
                if any(key.value == other.value for other in keys[:i]):
                    raise ValueError(f"line {key.start_mark.line + 1}: {key.value} stands there twice")
            todo.extend(value for _, value in node.value)


def _snake(name: str) -> str:
    return re.sub(r"([A-Z])", lambda found: "_" + found[0].lower(), name)

"""
A kubeconfig as client-go reads it: the files merged, the current context's cluster and user, absolute paths.

Source: `client-go/tools/clientcmd` (`loader.go`, `validation.go`). kubernetes-asyncio reads the files; it is
imported only if needed, because the import takes 0.3 s. Its loader is not used: it ignores `as`, prefers `token` to
`tokenFile`, runs exec plugins without a time limit, and writes embedded private keys to files in /tmp. Refuses what
client-go refuses; an error shows no value, because it may be a secret. `auth` decides what to do with the result.
"""

import binascii
import os
import re
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import msgspec

from neuron_scheduler.errors import ConfigurationError

CLUSTER_EXTENSION: Final = "client.authentication.k8s.io/exec"  # has the data about its cluster that a plugin gets

_PEM: Final = re.compile(r"-----BEGIN [A-Z0-9 ]+-----")
_QUOTED: Final = re.compile(r"'..+'", re.DOTALL)

T = TypeVar("T")


class Extension(msgspec.Struct, frozen=True):
    """Data that a program keeps beside an entry."""

    name: str
    extension: Any = None


class Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    """An API server; paths are absolute."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: list[Extension] = []

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if self.certificate_authority and self.certificate_authority_data:
            raise ValueError("certificate-authority and certificate-authority-data are both set; keep one")
        if self.insecure_skip_tls_verify and (self.certificate_authority or self.certificate_authority_data):
            raise ValueError("insecure-skip-tls-verify is set beside a certificate authority; keep one")

    def at(self, folder: Path) -> "Cluster":
        """Return the cluster with its paths made absolute."""
        return msgspec.structs.replace(self, certificate_authority=_absolute(folder, self.certificate_authority))


class Variable(msgspec.Struct, frozen=True):
    """An environment variable."""

    name: str
    value: str = ""


class Exec(msgspec.Struct, frozen=True, rename="camel"):
    """A credential plugin."""

    command: str = ""
    api_version: str = ""
    args: list[str] = []
    env: list[Variable] = []
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class AuthProvider(msgspec.Struct, frozen=True):
    """The kind of credentials that client-go had before plugins."""

    name: str = ""


class User(msgspec.Struct, frozen=True, rename="kebab"):
    """Who the process is; paths are absolute."""

    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    impersonate: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}
    auth_provider: AuthProvider | None = None
    exec: Exec | None = None

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if self.auth_provider is not None:
            raise ValueError(
                f"auth-provider {self.auth_provider.name!r} is not supported; use an exec plugin, a tokenFile or a"
                " client certificate"
            )
        if (self.token or self.token_file) and self.username:
            raise ValueError("a token and a username are both set; keep one")
        for name in ("client_certificate", "client_key"):
            if getattr(self, name) and getattr(self, f"{name}_data"):
                kebab = name.replace("_", "-")
                raise ValueError(f"{kebab} and {kebab}-data are both set; keep one")
        if self.has_certificate != bool(self.client_key or self.client_key_data):
            raise ValueError("a client certificate needs its key, and a key its certificate; set both or none")
        if (self.as_uid or self.as_groups or self.as_user_extra) and not self.impersonate:
            raise ValueError("as-uid, as-groups and as-user-extra need `as`, the user to act as")

    @property
    def has_certificate(self) -> bool:
        """Whether there is a client certificate."""
        return bool(self.client_certificate or self.client_certificate_data)

    def at(self, folder: Path) -> "User":
        """Return the user with its paths made absolute; a plugin's command without a slash is looked up on PATH."""
        plugin = self.exec
        if plugin is not None and os.sep in plugin.command:
            plugin = msgspec.structs.replace(plugin, command=_absolute(folder, plugin.command))
        return msgspec.structs.replace(
            self,
            token_file=_absolute(folder, self.token_file),
            client_certificate=_absolute(folder, self.client_certificate),
            client_key=_absolute(folder, self.client_key),
            exec=plugin,
        )


class _Context(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _Entry(msgspec.Struct, frozen=True):
    name: str
    cluster: dict[str, Any] = {}
    user: dict[str, Any] = {}
    context: dict[str, Any] = {}


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    current_context: str = ""
    clusters: list[_Entry] = []
    users: list[_Entry] = []
    contexts: list[_Entry] = []


@attrs.frozen
class Kubeconfig:
    """The current context's cluster, user and namespace; a context without a user is anonymous."""

    cluster: Cluster
    user: User
    namespace: str = ""


def read(paths: str, context: str = "", *, cluster: str = "", user: str = "", needed: bool = True) -> Kubeconfig:
    """
    Return the cluster and the user of a context, by default the current one.

    Args:
        paths: separated as in PATH; the first file wins.
        context: its name.
        cluster: the name of an entry in place of the one that the context names.
        user: likewise.
        needed: a file, and a context in it, must be there; if not, an empty kubeconfig will do.

    Raises:
        ConfigurationError: no file exists, or one cannot be used.
    """
    candidates = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    files = [(path.absolute().parent, _file(path)) for path in candidates if path.exists()]
    needed = needed or bool(context or cluster or user)
    if not files:
        if not needed:
            return Kubeconfig(Cluster(), User())
        raise ConfigurationError(f"kubeconfig {paths} does not exist; pass --kubeconfig FILE or --master URL")
    try:
        return _chosen(files, context, cluster, user, needed=needed)
    except ValueError as error:
        raise ConfigurationError(f"kubeconfig {paths} is unusable: {error}; compare `kubectl config view`") from error


def _chosen(
    files: list[tuple[Path, _File]], name: str, cluster_name: str, user_name: str, *, needed: bool
) -> Kubeconfig:
    name = name or next((file.current_context for _, file in files if file.current_context), "")
    if not (name or cluster_name):
        if not needed:
            return Kubeconfig(Cluster(), User())
        raise ValueError("it has no current-context; `kubectl config use-context NAME` sets it")
    context = _convert(_entry(files, "contexts", name)[1], _Context, f"context {name!r}") if name else _Context()
    cluster_name, user_name = cluster_name or context.cluster, user_name or context.user
    folder, values = _entry(files, "clusters", cluster_name)
    cluster = _convert(values, Cluster, f"cluster {cluster_name!r}").at(folder)
    folder, values = _entry(files, "users", user_name) if user_name else (folder, {})
    user = _convert(values, User, f"user {user_name!r}").at(folder)
    return Kubeconfig(cluster, user, context.namespace)


def _file(path: Path) -> _File:
    try:
        return msgspec.convert(_without_nulls(_content(path)), _File)
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigurationError(
            f"kubeconfig {path} cannot be read: {reason}; compare `kubectl config view`"
        ) from error


def _content(path: Path) -> Any:
    import yaml
    from kubernetes_asyncio.config.kube_config import KubeConfigMerger

    try:
        return KubeConfigMerger(str(path)).config_files.get(str(path), {})
    except (TypeError, AttributeError, LookupError) as error:  # the library raises these for any other content
        raise ValueError("it is not a kubeconfig: expected a mapping with clusters, users and contexts") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark is not None else ""
        problem = _QUOTED.sub("...", getattr(error, "problem", None) or "no YAML")  # `password: *secret` is an alias
        raise ValueError(f"{problem}{line}") from None  # the whole text would quote the line


def _without_nulls(value: Any) -> Any:
    """Return the value without fields that are null: for Go they are missing."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _entry(files: list[tuple[Path, _File]], kind: str, name: str) -> tuple[Path, dict[str, Any]]:
    """Return the folder and the content of an entry; the first file that has it wins."""
    for folder, file in files:
        same = [entry for entry in getattr(file, kind) if entry.name == name]
        if len(same) > 1:
            raise ValueError(f"{kind[:-1]} {name!r} is defined twice; remove one")
        if same:
            content: dict[str, Any] = getattr(same[0], kind[:-1])
            return folder, content
    known = ", ".join(sorted({entry.name for _, file in files for entry in getattr(file, kind)}))
    raise ValueError(f"{kind[:-1]} {name!r} is not among its {kind} ({known or 'there are none'})")


def _convert(values: dict[str, Any], kind: type[T], entry: str) -> T:
    try:
        converted = msgspec.convert(values, kind)
        if isinstance(converted, Cluster | User):
            converted.check()
    except (msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"{entry}: {error}") from error
    return converted


def pem(data: str, name: str) -> str | None:
    """
    Return the PEM text that a `...-data` field of this name contains, None if it is empty.

    Raises:
        ValueError: it contains something else.
    """
    if not data:
        return None
    try:
        text = binascii.a2b_base64("".join(data.split()), strict_mode=True).decode("ascii")
    except ValueError as error:
        raise ValueError(f"{name} is not base64 of PEM; `base64 -w0 FILE` writes it") from error
    if not _PEM.search(text):
        raise ValueError(f"{name} contains no PEM block (-----BEGIN ...); `base64 -w0 FILE` writes it from a PEM file")
    return text


def _absolute(folder: Path, path: str) -> str:
    return str(folder / path) if path else ""

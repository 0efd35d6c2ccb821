"""
A kubeconfig, read by kubernetes-asyncio: it merges files, and knows contexts, certificates, passwords and plugins.

Added here is what it lacks: `as`; a tokenFile that is read again; with several files the first one's current context,
as client-go has it; a time limit for plugins, and a new token before the old one expires. Its import takes half a
second and 68 MiB, so this module is imported where there is a kubeconfig, and never in a cluster.
"""

import asyncio
import logging
import math
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, TypeAlias, cast
from urllib.parse import quote

import attrs
import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config.exec_provider import ExecProvider
from kubernetes_asyncio.config.kube_config import ConfigNode, FileOrData, KubeConfigLoader, KubeConfigMerger

from neuron_scheduler.kube.http.credentials import NOBODY, Credentials, Fixed, TokenFile, printable
from neuron_scheduler.kube.http.tls import Tls
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ConfigurationError, CredentialsError

TIMEOUT: Final = 30.0  # seconds for one run of a plugin
PAUSE: Final = 10.0  # seconds between two runs that are not due: a plugin that fails, a token that is rejected
RENEW_AT: Final = 0.8  # of a token's life
PATIENCE: Final = 5.0  # seconds that a request waits for a plugin if there is no valid token
LONGEST_ERROR: Final = 500  # characters of what a plugin says

_LEGAL_IN_A_NAME: Final = "!#$&'*+^`|~"  # of a header, beside what `quote` leaves as it is
_WITH_LIMIT: Final = "import os,signal,sys; signal.alarm(int(sys.argv[1])); os.execvp(sys.argv[2], sys.argv[2:])"
"""The kernel ends a plugin that hangs: an alarm outlives `exec`, and the library has no limit."""
_NOBODY: Final = "(nobody)"  # the user of a context without one, for whom the library has no place

Status: TypeAlias = Mapping[str, Any]
"""The status of an ExecCredential."""

log = logs.logger(__name__)
logging.getLogger(KubeConfigMerger.__module__).setLevel(logging.ERROR)  # it warns where we raise: no file exists


@attrs.frozen
class Kubeconfig:
    """What the chosen context says; texts are empty for what it does not say."""

    server: str
    credentials: Credentials
    tls: Tls
    proxy_url: str
    headers: tuple[tuple[str, str], ...]
    acting_as: str
    namespace: str


async def read(
    paths: str,
    context: str,
    *,
    server: str,
    token: str,
    acting_as: Mapping[str, Any],
    clock: Callable[[], float],
) -> Kubeconfig:
    """
    Return what a context says, by default the current one; a plugin is run once, because it may give a certificate.

    `paths` are separated as in PATH: of entries with one name the first file's counts, and missing files are skipped.
    `server` replaces the cluster's, `token` the user's credentials, and `acting_as` the user's fields `as`, `as-uid`,
    `as-groups` and `as-user-extra`; each is empty for none.

    Raises:
        ConfigurationError: no file exists, or one cannot be used.
    """
    with _in_one_sentence(paths):
        merger = KubeConfigMerger(paths)
        config = merger.config
        if config is None:
            raise ConfigurationError("it does not exist; pass --kubeconfig FILE or --master URL")
        current = (merger.config_files[path].get("current-context") for path in merger.paths)
        name = context or next(filter(None, current), "")
        if not name:
            raise ConfigurationError("it has no current-context; `kubectl config use-context NAME` sets it")
        chosen = _entry(config, "context", name)
        cluster, user = _entry(config, "cluster", chosen["cluster"]), _user(config, chosen)
        if server:
            cluster.value["server"] = server
        if not cluster.safe_get("server"):
            raise ConfigurationError(f"cluster {chosen['cluster']!r} has no server")
        plugin, token_file = _taken_out(user, token)
        acting_as = acting_as or user.value
        headers = (*_acting_as(acting_as), *_uncompressed(cluster))
        settings = Configuration()
        await KubeConfigLoader(config_dict=config, active_context=name, config_base_path=None).load_and_set(settings)
        credentials = TokenFile(token_file, clock) if token_file else await _credentials(settings, plugin)
        tls = Tls(
            clock=clock,
            ca_file=settings.ssl_ca_cert,
            cert_file=settings.cert_file,
            key_file=settings.key_file,
            verify=settings.verify_ssl,
            server_name=settings.tls_server_name,
            origin=f"kubeconfig {os.pathsep.join(merger.paths)}",
        )
        return Kubeconfig(
            server=(settings.host or "").rstrip("/"),
            credentials=credentials,
            tls=tls,
            proxy_url=settings.proxy or "",
            headers=headers,
            acting_as=acting_as.get("as") or "",
            namespace=chosen.safe_get("namespace") or "",
        )


async def _credentials(settings: Configuration, plugin: ConfigNode | None) -> Credentials:
    """Return the credentials beside a tokenFile; the certificate of a plugin goes into the settings."""
    if settings.api_key:
        scheme, _, secret = settings.api_key["BearerToken"].partition(" ")
        return Fixed(f"{scheme} {printable(secret, 'the user')}")
    if plugin is None or settings.cert_file is not None:
        return NOBODY
    credentials = ExecPlugin(lambda: _run(plugin), time.time)
    settings.cert_file, settings.key_file = _certificate(await credentials.start())
    return credentials


@contextmanager
def _in_one_sentence(paths: str) -> Iterator[None]:
    """Turn every exception into an error that names the files."""
    try:
        yield
    except (ConfigurationError, CredentialsError) as error:
        raise ConfigurationError(f"kubeconfig {paths}: {error}") from error
    except Exception as error:
        raise ConfigurationError(
            f"kubeconfig {paths} is unusable: {_without_values(error)}; compare `kubectl config view`"
        ) from error


def _without_values(error: Exception) -> str:
    """Return what the library says, without what it quotes of the file: that may be a secret."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1} of {error.problem_mark.name} is no YAML"
    return (str(error) or type(error).__name__).partition("{")[0][:LONGEST_ERROR].partition("\n")[0]


def _entry(config: ConfigNode, kind: str, name: Any) -> ConfigNode:
    return cast(ConfigNode, cast(ConfigNode, config[f"{kind}s"].get_with_name(name))[kind])


def _user(config: ConfigNode, context: ConfigNode) -> ConfigNode:
    """Return the fields of a context's user, which are none for a context without one."""
    if not context.safe_get("user"):
        config.value["users"].append(ConfigNode(_NOBODY, {"name": _NOBODY, "user": {}}))
        context.value["user"] = _NOBODY
    user = _entry(config, "user", context["user"])
    if user.safe_get("auth-provider"):
        raise ConfigurationError(
            "auth-provider is not supported; use an exec plugin, a tokenFile or a client certificate"
        )
    return user


def _taken_out(user: ConfigNode, token: str) -> tuple[ConfigNode | None, str]:
    """
    Take what is ours out of a user's fields; return the plugin, None for none, and the path of the tokenFile.

    As by client-go, a plugin counts only if there is nothing else, and a tokenFile counts before a token.
    """
    fields = user.value
    plugin, token_file = fields.pop("exec", None), fields.pop("tokenFile", "")
    if token:
        for name in ("username", "password"):
            fields.pop(name, None)
        fields["token"] = token
    elif token_file:
        fields.pop("token", None)
        folder = os.path.dirname(os.path.abspath(cast(str, user.path)))  # noqa: PTH100, PTH120 - reads no file
        token_file = os.path.join(folder, token_file)  # noqa: PTH118 - likewise
    alone = plugin and not (token_file or fields.get("token") or fields.get("username"))
    return (ConfigNode("exec", plugin, user.path) if alone else None), "" if token else token_file


def _acting_as(user: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the headers of impersonation (`client-go/transport/round_trippers.go`)."""
    if not user.get("as"):
        return
    headers = [("Impersonate-User", user["as"])]
    headers += [("Impersonate-Uid", user["as-uid"])] if user.get("as-uid") else []
    headers += [("Impersonate-Group", group) for group in user.get("as-groups") or ()]
    for key, values in (user.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{quote(key, safe=_LEGAL_IN_A_NAME)}", value) for value in values]
    for name, value in headers:
        if not value.isprintable():
            raise ConfigurationError(f"the user's {name} has characters that cannot be part of a header")
        yield name, value


def _uncompressed(cluster: ConfigNode) -> Sequence[tuple[str, str]]:
    return (("Accept-Encoding", "identity"),) if cluster.safe_get("disable-compression") else ()


async def _run(plugin: ConfigNode) -> Status:
    """
    Run a plugin once.

    Raises:
        CredentialsError: it cannot be run, fails, hangs, or prints no credentials.
    """
    command = str(plugin.safe_get("command") or "")
    if shutil.which(command) is None:
        hint = plugin.safe_get("installHint") or "install it, or correct the command"
        raise CredentialsError(f"credential plugin {command} cannot be found; {hint}")
    try:
        provider = ExecProvider(plugin)
        provider.args[:0] = [sys.executable, "-ISc", _WITH_LIMIT, str(int(TIMEOUT))]
        async with asyncio.timeout(TIMEOUT + 1):  # where a child that it has left holds its pipes
            status = await provider.run()
    except Exception as error:
        said = " ".join((str(error) or type(error).__name__).split())
        raise CredentialsError(f"credential plugin {command} failed: {said[-LONGEST_ERROR:]}") from error
    if not status.get("token") and not (status.get("clientCertificateData") and status.get("clientKeyData")):
        raise CredentialsError(f"credential plugin {command} gave neither a token nor a certificate with its key")
    return cast(Status, status)


def _certificate(status: Status) -> tuple[str | None, str | None]:
    """Return the paths of the client certificate and its key, if a plugin gives them; they are removed at the exit."""
    if "clientCertificateData" not in status:
        return None, None
    certificate, key = (
        FileOrData(status, "", data_key_name=name, base64_file_content=False).as_file()
        for name in ("clientCertificateData", "clientKeyData")
    )
    return certificate, key


@attrs.define(eq=False)
class ExecPlugin:
    """
    Credentials from a plugin such as `aws eks get-token`: one run at a time, which no request waits for without need.

    Attributes:
        run: runs the plugin once; raises CredentialsError.
        now: Unix time, which the plugin's expirationTimestamp is compared with.
    """

    run: Callable[[], Awaitable[Status]]
    now: Callable[[], float]
    _header: str | None = attrs.field(default=None, init=False, repr=False)
    _due_at: float = attrs.field(default=-math.inf, init=False)  # when the next run is to begin
    _expires: float = attrs.field(default=-math.inf, init=False)
    _not_before: float = attrs.field(default=-math.inf, init=False)  # when the next run may begin
    _running: "asyncio.Task[None] | None" = attrs.field(default=None, init=False)
    _failure: str = attrs.field(default="", init=False)  # of the last run
    _trouble: logs.Trouble = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._trouble = logs.Trouble(log, "Credential plugin works again", self.now)

    async def start(self) -> Status:
        """Wait for a first run and return all that it gave; raises CredentialsError if it fails."""
        status = await self.run()
        self._accept(status)
        return status

    async def authorization(self) -> str | None:
        """Return the header; waits for the plugin only if there is no token that is valid."""
        if self.now() >= self._due_at:
            running = self._begin()
            if self.now() >= self._expires:
                await _ended(running)
                if self.now() >= self._expires:
                    raise CredentialsError(self._failure or "the credential plugin has not answered in time")
        return self._header

    async def renew(self, rejected: str | None, /) -> str | None:
        """Return the header of a new run, unless another request has already replaced the rejected one."""
        if self._header == rejected:
            await _ended(self._begin(pause=PAUSE))
        return self._header

    def _begin(self, *, pause: float = 0.0) -> "asyncio.Task[None] | None":
        """Return the task of the run that is under way or begins now; None in the seconds of pause after another."""
        if self._running is None and self.now() >= self._not_before:
            self._running = asyncio.create_task(self._replace(pause), name="credential plugin")
        return self._running

    async def _replace(self, pause: float) -> None:
        try:
            self._accept(await self.run())
            self._trouble.over()
        except (CredentialsError, ValueError) as error:  # ValueError: the time when it expires
            self._failure, pause = str(error), PAUSE
            self._trouble.met("Credential plugin fails", error)
        finally:
            self._not_before = self.now() + pause
            self._running = None

    def _accept(self, status: Status) -> None:
        token, expires, now = status.get("token"), status.get("expirationTimestamp"), self.now()
        life = math.inf if not expires else datetime.fromisoformat(expires).timestamp() - now
        header = f"Bearer {printable(token, 'the credential plugin')}" if token else None
        life = max(life, PAUSE)  # one that comes expired is used once
        self._header, self._expires, self._due_at = header, now + life, now + RENEW_AT * life


async def _ended(running: "asyncio.Task[None] | None") -> None:
    """Wait for a run, without ending it when the wait is cancelled or takes too long."""
    if running is not None:
        await asyncio.wait([running], timeout=PATIENCE)

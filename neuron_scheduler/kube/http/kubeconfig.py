"""
A kubeconfig, read by kubernetes-asyncio: it merges files, and knows contexts, certificates, passwords and plugins.

Added here is what it lacks: `as`, and the first file's current context, as in client-go. A tokenFile is read again. A
plugin has a time limit, and is run again after a 401. Its import takes half a second and 68 MiB, so this module is
imported only where there is a kubeconfig.
"""

import asyncio
import logging
import math
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import attrs
import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger

from neuron_scheduler.kube.http.credentials import Credentials, TokenFile, printable
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ConfigurationError, CredentialsError

LONGEST_RUN: Final = 30.0  # seconds of a plugin
PAUSE: Final = 10.0  # seconds between two runs of a plugin, also where every token is rejected
LONGEST_ERROR: Final = 500  # characters of what the library or a plugin says

log = logs.logger(__name__)
logging.getLogger(KubeConfigMerger.__module__).setLevel(logging.CRITICAL)  # it logs what it raises, or where we raise


@attrs.frozen
class Context:
    """What a context says: the library's settings, who we are, the headers to act as another, and the namespace."""

    settings: Configuration
    credentials: Credentials
    headers: tuple[tuple[str, str], ...]
    namespace: str


async def read(
    paths: str, name: str, *, server: str, token: str, acting_as: Mapping[str, Any], clock: Callable[[], float]
) -> Context:
    """
    Return what the context of a name says, by default the current one; a plugin is run once.

    Of entries with one name the first file's counts; missing files are skipped. `server` replaces the cluster's,
    `token` the user's credentials, `acting_as` the user's `as` and `as-groups`; each is empty for none.

    Raises:
        ConfigurationError: no file exists, or one cannot be used.
    """
    with _in_one_sentence(paths):
        merger = KubeConfigMerger(paths)
        config = merger.config
        if config is None:
            raise ConfigurationError("it does not exist; pass --kubeconfig FILE or --master URL")
        current = (merger.config_files[path].get("current-context") for path in merger.paths)
        name = name or next(filter(None, current), "")
        if not name:
            raise ConfigurationError("it has no current-context; `kubectl config use-context NAME` sets it")
        chosen = _entry(config, "context", name)
        cluster, user = _entry(config, "cluster", chosen["cluster"]), _user(config, chosen)
        if server:
            cluster.value["server"] = server
        if not cluster.safe_get("server"):
            raise ConfigurationError(f"cluster {chosen['cluster']!r} has no server")
        if user.safe_get("auth-provider"):
            raise ConfigurationError(
                "auth-provider is not supported; use an exec plugin, a tokenFile or a client certificate"
            )
        if token:
            for field in ("exec", "tokenFile", "username", "password"):
                user.value.pop(field, None)
            user.value["token"] = token
        plugin = user.safe_get("exec") or {}
        if plugin and shutil.which(plugin.get("command") or "") is None:
            hint = plugin.get("installHint") or "install it, or correct the command"
            raise ConfigurationError(f"credential plugin {plugin.get('command')} cannot be found; {hint}")
        token_file = _token_file_of(user)
        kept = KubeconfigUser(partial(_load, config, name), clock)
        settings = await kept.start()
        credentials: Credentials = TokenFile(token_file, clock) if token_file else kept
        await credentials.authorization()
        headers = tuple(_acting_as(acting_as or user.value))
        return Context(settings, credentials, headers, chosen.safe_get("namespace") or "")


@contextmanager
def _in_one_sentence(paths: str) -> Iterator[None]:
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
    """Return a context's user; if it has none, one who sends nothing, as with kubectl."""
    if not context.safe_get("user"):
        context.value["user"] = "(nobody)"
        config.value["users"].append(ConfigNode("user", {"name": "(nobody)", "user": {}}))
    return _entry(config, "user", context.value["user"])


def _token_file_of(user: ConfigNode) -> str:
    """Take the path of the tokenFile out of a user's fields; empty for none."""
    path = user.value.pop("tokenFile", "")
    return str(Path(cast(str, user.path)).absolute().parent / path) if path else ""


def _acting_as(user: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not user.get("as"):
        return
    for name, value in (
        ("Impersonate-User", user["as"]),
        *(("Impersonate-Group", group) for group in user.get("as-groups") or ()),
    ):
        if not value.isprintable():
            raise ConfigurationError(f"the user's {name} has characters that cannot be part of a header")
        yield name, value


async def _load(config: ConfigNode, context: str) -> Configuration:
    """Return what the library reads: certificates, too, and what a plugin says, which it runs."""
    settings = Configuration()
    loader = KubeConfigLoader(config_dict=config, active_context=context, config_base_path=None)
    await loader.load_and_set(settings)
    return settings


@attrs.define(eq=False)
class KubeconfigUser:
    """
    The header of a kubeconfig's user; after a 401 a plugin is run again, by one request for all that were rejected.

    Attributes:
        load: runs the plugin, if there is one; may raise anything.
    """

    load: Callable[[], Awaitable[Configuration]]
    clock: Callable[[], float]
    _header: str | None = attrs.field(default=None, init=False, repr=False)
    _loaded_at: float = attrs.field(default=-math.inf, init=False)
    _turn: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)
    _trouble: logs.Trouble = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._trouble = logs.Trouble(log, "Credential plugin works again", self.clock)

    async def start(self) -> Configuration:
        self._loaded_at = self.clock()
        async with asyncio.timeout(LONGEST_RUN):  # all requests that were rejected wait for it
            settings = await self.load()
        scheme, _, secret = settings.api_key.get("BearerToken", "").partition(" ")
        self._header = f"{scheme} {printable(secret, 'the user')}" if secret else None
        return settings

    async def authorization(self) -> str | None:
        return self._header

    async def renew(self, rejected: str | None, /) -> str | None:
        """Return the header that is read now, unless another request has already replaced the rejected one."""
        async with self._turn:
            if self._header == rejected and self.clock() - self._loaded_at >= PAUSE:
                try:
                    await self.start()
                    self._trouble.report_end()
                except Exception as error:  # noqa: BLE001 - whatever the library raises
                    self._trouble.report("Credential plugin fails", CredentialsError(_without_values(error)))
        return self._header

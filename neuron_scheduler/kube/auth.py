"""
Where the API server is, and how to prove who we are: decided explicitly, from a flag or from the environment.

kubernetes-asyncio reads kubeconfig files (merging, contexts, relative paths, embedded data); its import costs half a
second and as much memory as the rest of the process, so it is imported only when a kubeconfig is used. Its refresh of
tokens, its REST layer and its guess between kubeconfig and cluster are not used.
"""

import functools
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import yaml

from neuron_scheduler.errors import ConfigurationError, CredentialsError
from neuron_scheduler.kube.credentials import Credentials, ExecPlugin, Fixed, TokenFile, run_plugin
from neuron_scheduler.kube.tls import Tls, proxy_for

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


NOBODY = Fixed()


@attrs.frozen
class Connection:
    """
    An API server and everything needed to talk to it.

    Attributes:
        server: URL without a trailing slash.
        source: in words, for log lines and error messages.
        proxy: URL of an HTTP proxy, read once.
    """

    server: str
    source: str
    credentials: Credentials = NOBODY
    tls: Tls | None = None
    proxy: str | None = None


async def load(
    kubeconfig: str | None = None,
    master: str | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
    clock: Callable[[], float] = time.monotonic,
) -> Connection:
    """
    Return the connection that the flags and the environment name.

    In this order: `--kubeconfig` (where `--master` replaces its server), `--master` alone (no credentials), the cluster
    we run in (KUBERNETES_SERVICE_HOST), KUBECONFIG, `~/.kube/config`.

    Raises:
        ConfigurationError: none of them is there, or the chosen one is unusable.
    """
    if kubeconfig:
        return await _from_kubeconfig(kubeconfig, master, environment, clock)
    if master:
        _check(master, "--master")
        tls = Tls(clock=clock) if master.startswith("https") else None
        return Connection(master.rstrip("/"), "--master", tls=tls, proxy=proxy_for(master, environment))
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster(environment, service_account, clock)
    paths = environment.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")  # noqa: ASYNC240, PTH111 - reads no file
    return await _from_kubeconfig(paths, None, environment, clock)


def _check(server: str, origin: str) -> None:
    try:
        parts = urlsplit(server)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        raise ConfigurationError(f"{origin}: {server!r} is no URL of an API server; write https://HOST:PORT")


def _in_cluster(environment: Mapping[str, str], folder: Path, clock: Callable[[], float]) -> Connection:
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT") or "443"
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    _check(server, "KUBERNETES_SERVICE_HOST")
    token, ca = folder / "token", folder / "ca.crt"
    for file in (token, ca):
        if not file.is_file():
            raise ConfigurationError(
                f"running in a cluster, but {file} is missing; set automountServiceAccountToken or pass --kubeconfig"
            )
    tls = Tls(clock=clock, ca_file=str(ca))
    tls.context()
    return Connection(server, "the cluster", TokenFile(str(token), clock), tls, proxy_for(server, environment))


async def _from_kubeconfig(
    paths: str, master: str | None, environment: Mapping[str, str], clock: Callable[[], float]
) -> Connection:
    from kubernetes_asyncio.client.configuration import Configuration
    from kubernetes_asyncio.config import ConfigException
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

    if not _exist(paths):
        raise ConfigurationError(f"kubeconfig {paths} does not exist; pass --kubeconfig FILE or --master URL")
    settings = Configuration()
    try:
        merger = KubeConfigMerger(paths)
        credentials = _credentials(merger, clock)
        await KubeConfigLoader(merger.config, config_base_path=None).load_and_set(settings)
    except ConfigException as error:
        raise ConfigurationError(
            f"kubeconfig {paths} is unusable: {_in_one_line(error)}; compare `kubectl config view`"
        ) from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError, AssertionError, yaml.YAMLError) as error:
        # the library lets through whatever a malformed file leads to
        said = str(error) or "an entry is missing or empty"
        raise ConfigurationError(f"kubeconfig {paths} cannot be read: {said}; compare `kubectl config view`") from error
    server = (master or settings.host or "").rstrip("/")
    _check(server, f"kubeconfig {paths}")
    header = settings.api_key.get("BearerToken")
    credentials = credentials or Fixed(" ".join(header.split()) if header else None)
    tls = None
    if server.startswith("https"):
        if isinstance(credentials, ExecPlugin):
            await _first_run(credentials, paths)
        tls = Tls(
            clock=clock,
            ca_file=settings.ssl_ca_cert,
            cert_file=settings.cert_file,
            key_file=settings.key_file,
            verify=settings.verify_ssl,
            server_name=settings.tls_server_name or None,
            certificate=credentials.certificate,
        )
        tls.context()
    return Connection(server, f"kubeconfig {paths}", credentials, tls, settings.proxy or proxy_for(server, environment))


async def _first_run(plugin: ExecPlugin, paths: str) -> None:
    """Run the plugin before the TLS context is made: a certificate may be what it gives."""
    try:
        await plugin.authorization()
    except CredentialsError as error:
        raise ConfigurationError(f"kubeconfig {paths}: {error}; run the plugin by hand") from error


def _exist(paths: str) -> bool:
    return any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path)


def _credentials(merger: Any, clock: Callable[[], float]) -> Credentials | None:
    """Take over what has to be refreshed (exec, tokenFile) from the merged kubeconfig; None for a static user."""
    from kubernetes_asyncio.config.exec_provider import ExecProvider

    config = merger.config
    first = (file.get("current-context") for file in merger.config_files.values())
    config.value["current-context"] = next(filter(None, first), "")  # kubectl: the first file wins
    if not config.value["current-context"]:
        raise ConfigurationError(f"kubeconfig {config.path} has no current-context; `kubectl config use-context NAME`")
    context = config["contexts"].get_with_name(config["current-context"])["context"]
    users = config.safe_get("users")
    named = config["users"].get_with_name(context.safe_get("user"), safe=True) if users else None
    if named is None or not isinstance(named.value.get("user"), dict):
        context.value["user"] = "anonymous"  # the loader fails on None
        config.value["users"] = [{"name": "anonymous", "user": {}}]
        return None
    user = named["user"]
    if user.safe_get("auth-provider"):
        name = user.value["auth-provider"].get("name")
        raise ConfigurationError(
            f"kubeconfig {user.path}: user {context.safe_get('user')!r} uses the removed auth-provider {name!r}; "
            "use an exec plugin, a tokenFile or a client certificate"
        )
    if user.safe_get("exec"):
        provider = ExecProvider(user["exec"])
        user.value.pop("exec")  # so that the loader does not run it without a time limit
        run = functools.partial(run_plugin, provider.args, provider.env, str(provider.api_version))
        return ExecPlugin(run, time.time)
    if user.safe_get("tokenFile") and not user.safe_get("token"):
        return TokenFile(str(Path(user.path).parent / user["tokenFile"]), clock)
    return None


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())

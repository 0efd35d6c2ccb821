"""
The API server's address, our credentials and the proxy in between, from a flag or from the environment.

Settings that cannot work are refused here, in one sentence, before anything is sent. In a cluster nothing of
kubernetes-asyncio is imported (`kubeconfig`). SOCKS is refused: aiohttp does not support it.
"""

import ipaddress
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed lacks it

import attrs
import yarl

from neuron_scheduler.kube.http.credentials import NOBODY, Credentials, Fixed, TokenFile
from neuron_scheduler.kube.http.tls import Tls
from neuron_scheduler.telemetry.errors import ConfigurationError, CredentialsError

if TYPE_CHECKING:
    from neuron_scheduler.kube.http.kubeconfig import Context

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def split_server(url: str) -> SplitResult | None:
    """Return the parts of a URL of http or https that a connection can be opened to, None for any other."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if good and url.isprintable() and " " not in url and not (parts.query or parts.fragment) else None


def read_proxy(url: str, origin: str) -> yarl.URL:
    """
    Return the proxy's URL; `origin` says in an error where the URL comes from.

    Raises:
        ConfigurationError: it is not the URL of an HTTP proxy.
    """
    if split_server(url) is None:
        raise ConfigurationError(f"{origin} is not the URL of an HTTP proxy; write http://HOST:PORT")
    return yarl.URL(url)


def proxy_for(url: str, environment: Mapping[str, str]) -> yarl.URL | None:
    """
    Return the proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name for the URL, None for a direct connection.

    Raises:
        ConfigurationError: the environment names a proxy that cannot be used.
    """
    parts = urlsplit(url)
    proxies = {name.lower().removesuffix("_proxy"): value for name, value in environment.items() if value}
    proxy = environment.get(f"{parts.scheme.upper()}_PROXY") or environment.get(f"{parts.scheme}_proxy")
    host = parts.hostname or ""
    if not proxy or is_loopback(host) or proxy_bypass_environment(parts.netloc, proxies):
        return None
    return read_proxy(proxy if "://" in proxy else f"http://{proxy}", f"{parts.scheme.upper()}_PROXY")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@attrs.frozen
class Connection:
    """
    An API server and everything needed to talk to it.

    Attributes:
        server: URL without a trailing slash.
        source: a description, for log lines and error messages.
        headers: sent with every request; a name may occur several times.
        namespace: of the context, or that we run in; empty if there is none.
    """

    server: str
    source: str
    credentials: Credentials = NOBODY
    tls: Tls | None = None
    proxy: yarl.URL | None = attrs.field(default=None, repr=False)  # may have a password
    headers: tuple[tuple[str, str], ...] = ()
    namespace: str = ""


async def load(
    paths: str | None = None,
    master: str | None = None,
    *,
    context: str = "",
    token: str = "",
    acting_as: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
    clock: Callable[[], float] = time.monotonic,
) -> Connection:
    """
    Return the connection that the flags and the environment name.

    In this order: a kubeconfig (`paths`, separated as in PATH; `master` replaces its server), `master` alone (no
    credentials but `token`), the cluster we run in (KUBERNETES_SERVICE_HOST), KUBECONFIG, `~/.kube/config`. `context`,
    `token` and `acting_as` (`as` and `as-groups`) replace what the kubeconfig says, and exclude the cluster we run in.

    Raises:
        ConfigurationError: none of them is there, or the chosen one is unusable.
    """
    if not paths:
        if master and not (context or acting_as):
            tls = Tls(clock=clock) if _check(master, "--master") else None
            credentials = Fixed(f"Bearer {token}") if token else NOBODY
            return Connection(master.rstrip("/"), "--master", credentials, tls, proxy_for(master, environment))
        if environment.get("KUBERNETES_SERVICE_HOST") and not (context or token or acting_as):
            return await _in_cluster(environment, service_account, clock)
        paths = environment.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")  # noqa: ASYNC240, PTH111 - reads no file
    from neuron_scheduler.kube.http import kubeconfig

    chosen = await kubeconfig.read(
        paths, context, server=master or "", token=token, acting_as=acting_as or {}, clock=clock
    )
    return _connection_of(chosen, f"kubeconfig {paths}", environment, clock)


def _check(server: str, origin: str) -> bool:
    """Return whether the server is reached over TLS."""
    parts = split_server(server)
    if parts is None or "@" in parts.netloc:
        raise ConfigurationError(f"{origin} names no URL of an API server; write https://HOST:PORT")
    return parts.scheme == "https"


async def _in_cluster(environment: Mapping[str, str], folder: Path, clock: Callable[[], float]) -> Connection:
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT") or "443"
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    _check(server, "KUBERNETES_SERVICE_HOST")
    token, ca = folder / "token", folder / "ca.crt"
    for file in (token, ca):
        if not file.is_file():
            raise ConfigurationError(
                f"running in a cluster, but {file} is missing; set automountServiceAccountToken or pass --kubeconfig"
            )
    credentials, tls = TokenFile(str(token), clock), Tls(clock=clock, ca_file=str(ca))
    try:
        await credentials.authorization()
    except CredentialsError as error:  # at the start it is an error of the configuration, later it is tried again
        raise ConfigurationError(f"running in a cluster: {error}") from error
    tls.context()
    return Connection(server, "the cluster", credentials, tls, namespace=_own_namespace(folder))


def _own_namespace(folder: Path) -> str:
    try:
        return (folder / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def _connection_of(
    chosen: "Context", origin: str, environment: Mapping[str, str], clock: Callable[[], float]
) -> Connection:
    settings, tls = chosen.settings, None
    server = (settings.host or "").rstrip("/")
    if _check(server, origin):
        tls = Tls(
            clock=clock,
            ca_file=settings.ssl_ca_cert,
            cert_file=settings.cert_file,
            key_file=settings.key_file,
            verify=settings.verify_ssl,
            server_name=settings.tls_server_name,
            origin=origin,
        )
        tls.context()
    return Connection(
        server,
        f"{origin}, acting as {chosen.headers[0][1]}" if chosen.headers else origin,
        chosen.credentials,
        tls,
        read_proxy(settings.proxy, f"{origin}: proxy-url") if settings.proxy else proxy_for(server, environment),
        chosen.headers,
        chosen.namespace,
    )

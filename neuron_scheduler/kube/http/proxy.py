"""
The HTTP proxy between a terminal and the API server, from a kubeconfig's `proxy-url` or from the environment.

A proxy's password is part of its URL, and URLs are written to logs and errors: the password is removed here first.
SOCKS is refused: aiohttp does not support it.
"""

import base64
import ipaddress
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed lacks it

import attrs

from neuron_scheduler.telemetry.errors import ConfigurationError

_USERINFO: Final = re.compile(r"\A([A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.DOTALL)


@attrs.frozen
class Proxy:
    """
    An HTTP proxy.

    Attributes:
        url: without user and password.
        authorization: the Proxy-Authorization header, None for none.
    """

    url: str
    authorization: str | None = attrs.field(default=None, repr=False)


def split_server(url: str) -> SplitResult | None:
    """Return the parts of a URL of http or https that a connection can be opened to, None for any other."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if good and url.isprintable() and " " not in url and not (parts.query or parts.fragment) else None


def without_password(url: str) -> str:
    """Return a URL, valid or not, for a message: with `***` for user and password."""
    return _USERINFO.sub(r"\1***@", url)


def read_proxy(url: str, origin: str) -> Proxy:
    """
    Return the proxy at a URL; `origin` says in an error where the URL comes from.

    Raises:
        ConfigurationError: it is not the URL of an HTTP proxy.
    """
    parts = split_server(url)
    if parts is None:
        raise ConfigurationError(
            f"{origin}: {without_password(url)!r} is not the URL of an HTTP proxy; write http://HOST:PORT"
        )
    userinfo, _, address = parts.netloc.rpartition("@")
    encoded = base64.b64encode(unquote(userinfo).encode()).decode()
    return Proxy(f"{parts.scheme}://{address}", f"Basic {encoded}" if userinfo else None)


def proxy_for(url: str, environment: Mapping[str, str]) -> Proxy | None:
    """
    Return the proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name for the URL, None for a direct connection.

    As for curl and Python, NO_PROXY has hosts and domains. Loopback is never proxied.

    Raises:
        ConfigurationError: the environment names a proxy that cannot be used.
    """
    parts = urlsplit(url)
    proxies = {name.lower().removesuffix("_proxy"): value for name, value in environment.items() if value}
    proxy = environment.get(f"{parts.scheme.upper()}_PROXY") or environment.get(f"{parts.scheme}_proxy")
    host = parts.hostname or ""
    if not proxy or _is_loopback(host) or proxy_bypass_environment(parts.netloc, proxies):
        return None
    return read_proxy(proxy if "://" in proxy else f"http://{proxy}", f"{parts.scheme.upper()}_PROXY")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""
The HTTP proxy in front of the API server, from a kubeconfig's `proxy-url` or from the environment.

A proxy's password is part of its URL, and URLs are written to logs and errors: the password is removed here first.
Refuses SOCKS: neither aiohttp nor our own HTTP supports it.
"""

import base64
import ipaddress
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

import attrs

from neuron_scheduler.errors import ConfigurationError

_USERINFO: Final = re.compile(r"\A([A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.DOTALL)
_PRINTABLE: Final = re.compile(r"[!-~]+")


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
        host, port = parts.hostname or "", parts.port
        host.encode("idna")  # as the resolver does
    except ValueError:
        return None
    good = parts.scheme in ("http", "https") and host and (port is None or port > 0)
    return parts if good and _PRINTABLE.fullmatch(url) and not (parts.query or parts.fragment) else None


def without_password(url: str) -> str:
    """Return a URL, valid or not, for a message: with `***` for user and password."""
    return _USERINFO.sub(r"\1***@", url)


def read_proxy(url: str, origin: str) -> Proxy:
    """
    Return the proxy at a URL; `origin` says in an error where the URL comes from.

    Raises:
        ConfigurationError: it is not the URL of a proxy that can be used.
    """
    parts = split_server(url)
    if parts is None:
        shown = without_password(url)
        if shown.lower().startswith("socks"):
            raise ConfigurationError(
                f"{origin}: {shown!r} is a SOCKS proxy, and only HTTP proxies are supported; name one"
            )
        raise ConfigurationError(f"{origin}: {shown!r} is not the URL of an HTTP proxy; write http://HOST:PORT")
    userinfo, _, address = parts.netloc.rpartition("@")
    authorization = None
    if userinfo:
        name, _, password = userinfo.partition(":")
        authorization = basic(unquote(name), unquote(password))
    return Proxy(f"{parts.scheme}://{address}", authorization)


def basic(name: str, password: str) -> str:
    """Return the header of HTTP's basic authentication."""
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def proxy_for(url: str, environment: Mapping[str, str]) -> Proxy | None:
    """
    Return the proxy that Go's `http.ProxyFromEnvironment` would use for the URL, or None for a direct connection.

    NO_PROXY entries are hosts, domains with or without a leading dot, addresses, networks, or `*`, each with an
    optional port; loopback is never proxied.

    Raises:
        ConfigurationError: the environment names a proxy that cannot be used.
    """
    parts = urlsplit(url)
    name = f"{parts.scheme}_proxy"
    name = name.upper() if environment.get(name.upper()) else name
    proxy = environment.get(name)
    host = (parts.hostname or "").rstrip(".")
    if not proxy or host == "localhost" or _is_loopback(host):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    excepted = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if any(_excepts(entry.strip().lower(), host, port) for entry in excepted.split(",") if entry.strip()):
        return None
    return read_proxy(proxy if "://" in proxy else f"http://{proxy}", name)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _excepts(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        pass  # the host or the entry is a name
    name, colon, digits = entry.rpartition(":")
    if colon and digits.isdigit() and not name.endswith(":"):
        if int(digits) != port:
            return False
        entry = name.strip("[]")
    if entry.startswith("*."):
        entry = entry[1:]
    return host.endswith(entry) if entry.startswith(".") else host == entry or host.endswith(f".{entry}")

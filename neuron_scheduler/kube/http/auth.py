"""
The API server's address and our credentials, from a flag or from the environment.

Settings that cannot work are refused here, before anything is sent; the error is one sentence. Does not guess between
a kubeconfig and the cluster that it runs in.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

import attrs

from neuron_scheduler.errors import ConfigurationError, CredentialsError
from neuron_scheduler.kube.http import kubeconfig
from neuron_scheduler.kube.http.credentials import Credentials, ExecPlugin, Fixed, TokenFile
from neuron_scheduler.kube.http.exec_plugin import API_VERSIONS, Plugin, printable
from neuron_scheduler.kube.http.overrides import NO_OVERRIDES, Overrides
from neuron_scheduler.kube.http.proxy import Proxy, basic, proxy_for, read_proxy, split_server, without_password
from neuron_scheduler.kube.http.tls import Tls

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_LEGAL_IN_A_NAME: Final = "!#$&'*+^`|~"  # of a header, beside what `quote` leaves as it is

NOBODY = Fixed()


@attrs.frozen
class Connection:
    """
    An API server and everything needed to talk to it.

    Attributes:
        server: URL without a trailing slash.
        source: a description, for log lines and error messages.
        proxy: read once.
        headers: sent with every request; a name may occur several times.
        namespace: the one that the context names, or that we run in; empty if there is none.
    """

    server: str
    source: str
    credentials: Credentials = NOBODY
    tls: Tls | None = None
    proxy: Proxy | None = None
    headers: tuple[tuple[str, str], ...] = ()
    namespace: str = ""


async def load(
    paths: str | None = None,
    master: str | None = None,
    *,
    overrides: Overrides = NO_OVERRIDES,
    environment: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
    clock: Callable[[], float] = time.monotonic,
) -> Connection:
    """
    Return the connection that the flags and the environment name.

    In this order: `--kubeconfig` (where `--master` replaces its server), `--master` alone (no credentials), the cluster
    we run in (KUBERNETES_SERVICE_HOST), KUBECONFIG, `~/.kube/config`. `overrides` change what a kubeconfig says; if
    there are any, the cluster that we run in is not used.

    Raises:
        ConfigurationError: none of them is there, or the chosen one is unusable.
    """
    overridden = overrides != NO_OVERRIDES
    if paths:
        return await _from_kubeconfig(paths, master, environment, clock, overrides, needed=True)
    if master and not overridden:
        tls = Tls(clock=clock) if _check(master, "--master") else None
        return Connection(master.rstrip("/"), "--master", tls=tls, proxy=proxy_for(master, environment))
    if environment.get("KUBERNETES_SERVICE_HOST") and not overridden:
        return await _in_cluster(environment, service_account, clock)
    paths = environment.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")  # noqa: ASYNC240, PTH111 - reads no file
    needed = not (overrides.server or master)
    return await _from_kubeconfig(paths, master, environment, clock, overrides, needed=needed)


def _check(server: str, origin: str) -> bool:
    """Return whether the server is reached over TLS."""
    parts = split_server(server)
    if parts is None:
        raise ConfigurationError(
            f"{origin}: {without_password(server)!r} is not the URL of an API server; write https://HOST:PORT"
        )
    if "@" in parts.netloc:
        raise ConfigurationError(
            f"{origin}: the URL {without_password(server)!r} contains a user name or password; put them into a user"
            " of a kubeconfig"
        )
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
    credentials = TokenFile(str(token), clock)
    await _start(credentials, "running in a cluster")
    tls = Tls(clock=clock, ca_file=str(ca))
    tls.context()
    proxy = proxy_for(server, environment)
    return Connection(server, "the cluster", credentials, tls, proxy, namespace=_own_namespace(folder))


def _own_namespace(folder: Path) -> str:
    try:
        return (folder / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


async def _from_kubeconfig(
    paths: str,
    master: str | None,
    environment: Mapping[str, str],
    clock: Callable[[], float],
    overrides: Overrides,
    *,
    needed: bool,
) -> Connection:
    origin = f"kubeconfig {paths}"
    try:
        chosen = overrides.applied_to(
            kubeconfig.read(paths, overrides.context, cluster=overrides.cluster, user=overrides.user, needed=needed)
        )
    except ValueError as error:
        raise ConfigurationError(f"{origin} with the flags beside it is unusable: {error}") from error
    cluster, user = chosen.cluster, chosen.user
    server = (master or cluster.server).rstrip("/")
    secure = _check(server, "--master" if master else "--server" if overrides.server else origin)
    proxy = read_proxy(cluster.proxy_url, f"{origin}: proxy-url") if cluster.proxy_url else None
    try:
        pair = _embedded_pair(user)
        ca = kubeconfig.pem(cluster.certificate_authority_data, "certificate-authority-data")
        credentials = _credentials(user, lambda: _exec_cluster(cluster, server, ca), environment, clock)
        headers = (*_acting_as(user), *((("Accept-Encoding", "identity"),) if cluster.disable_compression else ()))
    except (OSError, ValueError, CredentialsError) as error:
        raise ConfigurationError(f"{origin}: {error}; compare `kubectl config view`") from error
    await _start(credentials, origin)  # before the TLS context is made: a plugin may give the client certificate
    tls = None
    if secure:
        tls = Tls(
            clock=clock,
            ca_file=cluster.certificate_authority or None,
            ca_data=ca,
            cert_file=None if pair else user.client_certificate or None,
            key_file=None if pair else user.client_key or None,
            verify=not cluster.insecure_skip_tls_verify,
            server_name=cluster.tls_server_name or None,
            certificate=(lambda: pair) if pair else credentials.certificate,
            origin=origin,
        )
        tls.context()
    source = f"{origin}, acting as {user.impersonate}" if user.impersonate else origin
    proxy = proxy or proxy_for(server, environment)
    return Connection(server, source, credentials, tls, proxy, headers, chosen.namespace)


async def _start(credentials: Credentials, origin: str) -> None:
    """Get the first token: a failure at the start is a configuration error, a later one is retried."""
    try:
        if isinstance(credentials, ExecPlugin):
            await credentials.start()
        else:
            await credentials.authorization()
    except CredentialsError as error:
        remedy = "; run the plugin by hand" if isinstance(credentials, ExecPlugin) else ""
        raise ConfigurationError(f"{origin}: {error}{remedy}") from error


def _credentials(
    user: kubeconfig.User,
    cluster_info: Callable[[], Mapping[str, object]],
    environment: Mapping[str, str],
    clock: Callable[[], float],
) -> Credentials:
    """
    Return the credentials that client-go would use for a user; `cluster_info` describes the cluster to a plugin.

    A plugin is not run beside a token, a user name or a certificate (`exec.go`, UpdateTransportConfig); the token is
    sent until the tokenFile has been read (`round_trippers.go`, NewBearerAuthWithRefreshRoundTripper).
    """
    token = printable(user.token, "the user's token")
    if user.token_file:
        return TokenFile(user.token_file, clock, otherwise=token)
    if token:
        return Fixed(f"Bearer {token}")
    if user.username:
        return Fixed(basic(user.username, user.password))
    plugin = user.exec
    if plugin is None or user.has_certificate:
        return NOBODY
    if plugin.api_version not in API_VERSIONS:
        raise ValueError(
            f"the exec plugin's apiVersion {plugin.api_version!r} is not supported; use {' or '.join(API_VERSIONS)}"
        )
    if not plugin.command:
        raise ValueError("the exec plugin has no command")
    if plugin.interactive_mode not in ("", "Never", "IfAvailable"):
        raise ValueError(
            f"the exec plugin's interactiveMode is {plugin.interactive_mode!r}, and this process has no terminal; use"
            " Never or IfAvailable"
        )
    run = Plugin(
        command=plugin.command,
        arguments=tuple(plugin.args),
        environment={**environment, **{variable.name: variable.value for variable in plugin.env}},
        api_version=plugin.api_version,
        cluster=cluster_info() if plugin.provide_cluster_info else None,
        install_hint=plugin.install_hint,
    ).run
    return ExecPlugin(run, time.time)


def _exec_cluster(cluster: kubeconfig.Cluster, server: str, ca: str | None) -> Mapping[str, object]:
    """Return the Cluster of client.authentication.k8s.io (`client-go/rest/exec.go`, ConfigToExecCluster)."""
    if cluster.certificate_authority:
        ca = Path(cluster.certificate_authority).read_text(encoding="utf-8")
    extensions = {extension.name: extension.extension for extension in cluster.extensions}
    fields = {
        "server": server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": (ca or "").encode(),
        "proxy-url": cluster.proxy_url,
        "disable-compression": cluster.disable_compression,
        "config": extensions.get(kubeconfig.CLUSTER_EXTENSION),
    }
    return {name: value for name, value in fields.items() if value}


def _embedded_pair(user: kubeconfig.User) -> tuple[str, str] | None:
    """Return the client certificate and its key as PEM, if one of them is part of the kubeconfig."""
    if not (user.client_certificate_data or user.client_key_data):
        return None
    certificate = kubeconfig.pem(user.client_certificate_data, "client-certificate-data")
    key = kubeconfig.pem(user.client_key_data, "client-key-data")
    return (
        certificate or Path(user.client_certificate).read_text(encoding="utf-8"),
        key or Path(user.client_key).read_text(encoding="utf-8"),
    )


def _acting_as(user: kubeconfig.User) -> Iterator[tuple[str, str]]:
    """Yield the headers of impersonation (`client-go/transport/round_trippers.go`)."""
    if not user.impersonate:
        return
    headers = [("Impersonate-User", user.impersonate)]
    headers += [("Impersonate-Uid", user.as_uid)] if user.as_uid else []
    headers += [("Impersonate-Group", group) for group in user.as_groups]
    for key, values in user.as_user_extra.items():
        headers += [(f"Impersonate-Extra-{quote(key, safe=_LEGAL_IN_A_NAME)}", value) for value in values]
    for name, value in headers:
        if not value.isprintable():
            raise ValueError(f"the user's {name} has characters that cannot be part of a header")
        yield name, value

"""
kubectl's connection flags, in place of what a kubeconfig says.

Source: `client-go/tools/clientcmd` (`overrides.go`; `client_config.go`, getAuthInfo and getCluster). A flag for one way
to authenticate replaces the others that cannot be used beside it. Does not read files: `kubeconfig` and `auth` do.
"""

import os
from typing import Final

import attrs
import msgspec

from neuron_scheduler.kube.http.kubeconfig import Cluster, Kubeconfig, User


@attrs.frozen(kw_only=True)
class Overrides:
    """
    The flags; an empty one leaves what the kubeconfig says.

    Attributes:
        context, cluster, user: names of entries of the kubeconfig.
        server: URL.
        certificate_authority, client_certificate, client_key: paths.
        proxy_url: the proxy to the API server.
        impersonate, impersonate_uid, impersonate_groups: whom to act as.
        impersonate_extra: further attributes of that user, as `KEY=VALUE`.
    """

    context: str = ""
    cluster: str = ""
    user: str = ""
    server: str = ""
    token: str = ""
    tls_server_name: str = ""
    certificate_authority: str = ""
    insecure_skip_tls_verify: bool = False
    client_certificate: str = ""
    client_key: str = ""
    impersonate: str = ""
    impersonate_uid: str = ""
    impersonate_groups: tuple[str, ...] = ()
    impersonate_extra: tuple[str, ...] = ()
    proxy_url: str = ""

    def applied_to(self, kubeconfig: Kubeconfig) -> Kubeconfig:
        """
        Return the kubeconfig's cluster and user as the flags change them.

        Raises:
            ValueError: the result contradicts itself.
        """
        cluster, user = self._cluster(kubeconfig.cluster), self._user(kubeconfig.user)
        cluster.check()
        user.check()
        return attrs.evolve(kubeconfig, cluster=cluster, user=user)

    def _cluster(self, cluster: Cluster) -> Cluster:
        changes: dict[str, object] = {}
        if self.server or self.tls_server_name:
            changes["tls_server_name"] = self.tls_server_name
        if self.server:
            changes["server"] = self.server
        if self.proxy_url:
            changes["proxy_url"] = self.proxy_url
        if self.insecure_skip_tls_verify or self.certificate_authority:
            changes |= {
                "insecure_skip_tls_verify": self.insecure_skip_tls_verify,
                "certificate_authority": _absolute(self.certificate_authority),
                "certificate_authority_data": "",
            }
        return msgspec.structs.replace(cluster, **changes)

    def _user(self, user: User) -> User:
        changes: dict[str, object] = {}
        if self.token:
            changes |= {"token": self.token, "token_file": "", "username": "", "password": ""}
        if self.client_certificate:
            changes |= {"client_certificate": _absolute(self.client_certificate), "client_certificate_data": ""}
        if self.client_key:
            changes |= {"client_key": _absolute(self.client_key), "client_key_data": ""}
        if self.impersonate or self.impersonate_uid or self.impersonate_groups or self.impersonate_extra:
            changes |= {
                "impersonate": self.impersonate,
                "as_uid": self.impersonate_uid,
                "as_groups": list(self.impersonate_groups),
                "as_user_extra": self._extra(),
            }
        return msgspec.structs.replace(user, **changes)

    def _extra(self) -> dict[str, list[str]]:
        values: dict[str, list[str]] = {}
        for text in self.impersonate_extra:
            key, equals, value = text.partition("=")
            if not key or not equals:
                raise ValueError(f"--as-user-extra={text} is not KEY=VALUE")
            values.setdefault(key, []).append(value)
        return values


NO_OVERRIDES: Final = Overrides()


def _absolute(path: str) -> str:
    return os.path.abspath(path) if path else ""  # noqa: PTH100 - reads no file

"""kubectl's connection flags beside a kubeconfig: the same effect as with kubectl."""

import base64
from pathlib import Path
from typing import Any

import pytest

from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.kube.http.auth import Connection, load
from neuron_scheduler.kube.http.overrides import Overrides
from tests.support.kubeconfigs import furnished, kubeconfig

TWO: dict[str, Any] = {
    "contexts": [
        {"name": "here", "context": {"cluster": "c", "user": "me", "namespace": "ml"}},
        {"name": "there", "context": {"cluster": "d", "user": "you"}},
    ],
    "clusters": [
        {"name": "c", "cluster": {"server": "https://api:6443", "certificate-authority": "ca.crt"}},
        {"name": "d", "cluster": {"server": "http://other:8080"}},
    ],
    "users": [
        {"name": "me", "user": {"tokenFile": "token"}},
        {"name": "you", "user": {"username": "you", "password": "secret"}},
    ],
}


async def connect(folder: Path, **flags: Any) -> Connection:
    """Connect with two contexts and these flags."""
    return await load(kubeconfig(furnished(folder), **TWO), overrides=Overrides(**flags), environment={})


@pytest.mark.parametrize(
    ("flags", "server", "token", "namespace"),
    [
        ({}, "https://api:6443", "Bearer from-file", "ml"),
        ({"context": "there"}, "http://other:8080", "Basic eW91OnNlY3JldA==", ""),
        ({"cluster": "d"}, "http://other:8080", "Bearer from-file", "ml"),
        ({"user": "you"}, "https://api:6443", "Basic eW91OnNlY3JldA==", "ml"),
        ({"server": "https://third:443/"}, "https://third:443", "Bearer from-file", "ml"),
        ({"token": "mine"}, "https://api:6443", "Bearer mine", "ml"),
        ({"user": "you", "token": "mine"}, "https://api:6443", "Bearer mine", "ml"),
    ],
)
async def test_flags_replace_what_the_kubeconfig_says(
    tmp_path: Path, flags: dict[str, Any], server: str, token: str, namespace: str
) -> None:
    """Each flag replaces its part; a token replaces every other secret."""
    connection = await connect(tmp_path, **flags)
    assert (connection.server, await connection.credentials.authorization(), connection.namespace) == (
        server,
        token,
        namespace,
    )


async def test_acting_as(tmp_path: Path) -> None:
    """The headers of impersonation, as kubectl sends them."""
    connection = await connect(
        tmp_path,
        impersonate="jane",
        impersonate_uid="7",
        impersonate_groups=("dev", "ops"),
        impersonate_extra=("k=a", "k=b"),
    )
    assert connection.headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-k", "a"),
        ("Impersonate-Extra-k", "b"),
    )
    assert connection.source.endswith("acting as jane")


async def test_trust(tmp_path: Path) -> None:
    """Whom to trust, and with which certificate to go there."""
    connection = await connect(tmp_path, insecure_skip_tls_verify=True, tls_server_name="name")
    assert connection.tls is not None
    assert (connection.tls.verify, connection.tls.ca_file, connection.tls.server_name) == (False, None, "name")
    files = {key: str(tmp_path / name) for key, name in (("client_certificate", "me.crt"), ("client_key", "me.key"))}
    connection = await connect(tmp_path, certificate_authority=str(tmp_path / "ca.crt"), **files)
    assert connection.tls is not None
    assert connection.tls.ca_file == str(tmp_path / "ca.crt")
    assert connection.tls.cert_file == str(tmp_path / "me.crt")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"insecure_skip_tls_verify": True, "certificate_authority": "x"}, "insecure-skip-tls-verify is set beside"),
        ({"client_certificate": "x"}, "a client certificate needs its key"),
        ({"impersonate_groups": ("dev",)}, "need `as`, the user to act as"),
        ({"impersonate": "jane", "impersonate_extra": ("k",)}, "--as-user-extra=k is not KEY=VALUE"),
        ({"proxy_url": "nonsense"}, "proxy-url"),
        ({"context": "none"}, "context 'none' is not among its contexts"),
        ({"cluster": "none"}, "cluster 'none' is not among its clusters"),
        ({"user": "none"}, "user 'none' is not among its users"),
        ({"server": "nonsense"}, "--server: 'nonsense' is not the URL of an API server"),
    ],
)
async def test_contradictions(tmp_path: Path, flags: dict[str, Any], says: str) -> None:
    """One sentence."""
    with pytest.raises(ConfigurationError, match=says):
        await connect(tmp_path, **flags)


async def test_a_server_needs_no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with kubectl; in a cluster, a flag means that another one is asked."""
    monkeypatch.setenv("HOME", str(tmp_path))
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    overrides = Overrides(server="http://127.0.0.1:1", token=base64.b64encode(b"t").decode())
    connection = await load(overrides=overrides, environment=environment)
    assert connection.server == "http://127.0.0.1:1"
    assert await connection.credentials.authorization() == "Bearer dA=="
    with pytest.raises(ConfigurationError, match="does not exist"):
        await load(overrides=Overrides(token="t"), environment=environment)


async def test_the_namespace_of_a_pod(tmp_path: Path) -> None:
    """In the cluster it is that of the ServiceAccount."""
    furnished(tmp_path)
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert (await load(environment=environment, service_account=tmp_path)).namespace == ""
    (tmp_path / "namespace").write_text("ml\n")
    assert (await load(environment=environment, service_account=tmp_path)).namespace == "ml"

"""Where the API server is: decided by flags first, then by the environment, and never guessed."""

import sys
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.kube.auth import Connection, load
from neuron_scheduler.kube.credentials import ExecPlugin, TokenFile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a CA, a client certificate and a token."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    found = authority.issue_cert("me@example.com")
    found.cert_chain_pems[0].write_to_path(tmp_path / "me.crt")
    found.private_key_pem.write_to_path(tmp_path / "me.key")
    (tmp_path / "token").write_text("from-file\n")
    return tmp_path


def kubeconfig(folder: Path, user: dict[str, Any] | None = None, **changes: Any) -> str:
    """Write a kubeconfig whose one context leads to https://api:6443, and return its path."""
    found = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "me"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443", "certificate-authority": "ca.crt"}}],
        "users": [{"name": "me", "user": user or {}}],
        **changes,
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(found))
    return str(path)


async def connect(path: str | None = None, master: str | None = None, **environment: str) -> Connection:
    """Load in an environment that holds nothing else."""
    return await load(path, master, environment={"HOME": "/nowhere", **environment})


async def test_master_alone() -> None:
    """A plain server needs no credentials."""
    found = await connect(master="http://127.0.0.1:8001/")

    assert found.server == "http://127.0.0.1:8001"
    assert found.tls is None
    assert await found.credentials.authorization() is None


async def test_in_cluster(folder: Path) -> None:
    """The service account's files are used, and the proxy that the environment excepts is not."""
    environment = {
        "KUBERNETES_SERVICE_HOST": "10.100.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "HTTPS_PROXY": "http://proxy:3128",
        "NO_PROXY": "10.0.0.0/8",
    }
    found = await load(environment=environment, service_account=folder)

    assert found.server == "https://10.100.0.1:443"
    assert found.proxy is None
    assert found.tls is not None
    assert await found.credentials.authorization() == "Bearer from-file"


async def test_in_cluster_over_ipv6(folder: Path) -> None:
    """An IPv6 address is bracketed."""
    found = await load(environment={"KUBERNETES_SERVICE_HOST": "fd00::1"}, service_account=folder)

    assert found.server == "https://[fd00::1]:443"


async def test_in_cluster_without_a_token(tmp_path: Path) -> None:
    """The sentence names the file and the remedy."""
    with pytest.raises(ConfigurationError, match="automountServiceAccountToken"):
        await load(environment={"KUBERNETES_SERVICE_HOST": "h"}, service_account=tmp_path)


async def test_a_flag_wins_over_the_cluster(folder: Path) -> None:
    """A kubeconfig that was asked for is the one that is used."""
    path = kubeconfig(folder, {"token": " secret\n"})
    found = await connect(path, KUBERNETES_SERVICE_HOST="10.0.0.1")

    assert found.server == "https://api:6443"
    assert await found.credentials.authorization() == "Bearer secret"


async def test_the_cluster_wins_over_a_stray_kubeconfig(folder: Path) -> None:
    """A file that happens to lie in an image decides nothing."""
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBECONFIG": kubeconfig(folder)}
    found = await load(environment=environment, service_account=folder)

    assert found.server == "https://10.0.0.1:443"


async def test_the_environment_names_a_kubeconfig(folder: Path) -> None:
    """KUBECONFIG is read when it is needed, not when a module is imported."""
    found = await connect(KUBECONFIG=kubeconfig(folder))

    assert found.server == "https://api:6443"


async def test_master_replaces_the_server(folder: Path) -> None:
    """As kube-scheduler has it."""
    found = await connect(kubeconfig(folder, {"token": "t"}), "https://other:1")

    assert found.server == "https://other:1"
    assert await found.credentials.authorization() == "Bearer t"


async def test_a_token_file_is_read_beside_the_kubeconfig(folder: Path) -> None:
    """Relative paths start where the file is, and the token stays fresh."""
    found = await connect(kubeconfig(folder, {"tokenFile": "token"}))

    assert isinstance(found.credentials, TokenFile)
    assert await found.credentials.authorization() == "Bearer from-file"


async def test_client_certificates(folder: Path) -> None:
    """They go into the TLS context."""
    found = await connect(kubeconfig(folder, {"client-certificate": "me.crt", "client-key": "me.key"}))

    assert found.tls is not None
    assert str(folder / "me.crt") == found.tls.cert_file


async def test_an_exec_plugin(folder: Path) -> None:
    """As for EKS: the plugin gives the token, with the arguments and variables of the kubeconfig."""
    script = 'import os; print(\'{"apiVersion": "client.authentication.k8s.io/v1beta1", "status": {"token": '
    script += "\"' + os.environ['PROFILE'] + '\"}}')"
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": sys.executable,
        "args": ["-c", script],
        "env": [{"name": "PROFILE", "value": "dev"}],
    }
    found = await connect(kubeconfig(folder, {"exec": plugin}))

    assert isinstance(found.credentials, ExecPlugin)
    assert await found.credentials.authorization() == "Bearer dev"


async def test_an_exec_plugin_that_fails(folder: Path) -> None:
    """The process says so at its start."""
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/plugin"}
    with pytest.raises(ConfigurationError, match="/no/such/plugin"):
        await connect(kubeconfig(folder, {"exec": plugin}))


async def test_nobody(folder: Path) -> None:
    """A context without a user is anonymous."""
    path = kubeconfig(folder, contexts=[{"name": "here", "context": {"cluster": "c"}}], users=None)
    found = await connect(path)

    assert await found.credentials.authorization() is None


async def test_server_name_and_proxy(folder: Path) -> None:
    """What the cluster entry says about the way there is kept."""
    cluster = {"server": "https://10.0.0.1", "tls-server-name": "api", "proxy-url": "http://proxy:1"}
    cluster["certificate-authority"] = "ca.crt"
    found = await connect(kubeconfig(folder, clusters=[{"name": "c", "cluster": cluster}]))

    assert found.tls is not None
    assert (found.tls.server_name, found.proxy) == ("api", "http://proxy:1")


UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "no current context": ({"current-context": ""}, "use-context"),
    "an unknown context": ({"current-context": "there"}, "there"),
    "no such cluster": ({"clusters": []}, "clusters"),
    "an empty cluster": ({"clusters": [{"name": "c", "cluster": {}}]}, "missing or empty"),
    "no server": ({"clusters": [{"name": "c", "cluster": {"tls-server-name": "x"}}]}, "URL"),
    "a server that is no URL": ({"clusters": [{"name": "c", "cluster": {"server": "api:6443"}}]}, "no URL"),
    "a CA that is missing": (
        {"clusters": [{"name": "c", "cluster": {"server": "https://a", "certificate-authority": "gone.crt"}}]},
        "gone.crt",
    ),
    "a removed auth provider": (
        {"users": [{"name": "me", "user": {"auth-provider": {"name": "gcp"}}}]},
        "auth-provider 'gcp'",
    ),
    "a plugin without a command": ({"users": [{"name": "me", "user": {"exec": {"apiVersion": "v1"}}}]}, "command"),
    "clusters that are no list": ({"clusters": 3}, "config"),
}


@pytest.mark.parametrize("sentence", UNUSABLE)
async def test_unusable_kubeconfigs(folder: Path, sentence: str) -> None:
    """One sentence that names the file."""
    changes, hint = UNUSABLE[sentence]
    with pytest.raises(ConfigurationError, match=hint) as caught:
        await connect(kubeconfig(folder, **changes))

    assert "kubeconfig" in str(caught.value)


@pytest.mark.parametrize("content", ["", "- a list", "{", "a: b: c"])
async def test_files_that_are_no_kubeconfig(tmp_path: Path, content: str) -> None:
    """Whatever the file holds, the answer is a sentence."""
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match="kubeconfig"):
        await connect(str(path))


@pytest.mark.parametrize("path", ["/no/such/file", None])
async def test_no_kubeconfig(path: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without anything there is a sentence that says what could be given."""
    monkeypatch.setenv("HOME", "/nowhere")
    with pytest.raises(ConfigurationError, match="--kubeconfig FILE or --master URL"):
        await connect(path)


@pytest.mark.parametrize("master", ["api:6443", "ftp://api", "http://", "https://api:x", "http://[::1"])
async def test_masters_that_are_no_url(master: str) -> None:
    """A typing error is told as one."""
    with pytest.raises(ConfigurationError, match="--master"):
        await connect(master=master)

"""Server and credentials come from flags first, then from the environment, and are never guessed."""

import subprocess
import sys
from pathlib import Path

import pytest
import yarl

from neuron_scheduler.kube.http.auth import load
from neuron_scheduler.telemetry.errors import ConfigurationError
from tests.support.kubeconfigs import connect, furnished, kubeconfig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a CA, a client certificate and a token."""
    return furnished(tmp_path)


async def test_master_alone() -> None:
    """A plain server needs no credentials; HTTPS in capitals is TLS too."""
    assert (await connect(master="HTTPS://api")).tls is not None
    connection = await connect(master="http://127.0.0.1:8001/")

    assert connection.server == "http://127.0.0.1:8001"
    assert connection.tls is None
    assert await connection.credentials.authorization() is None


async def test_in_cluster(folder: Path) -> None:
    """The service account's files are used, and no proxy."""
    environment = {
        "KUBERNETES_SERVICE_HOST": "10.100.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "HTTPS_PROXY": "http://proxy:3128",
    }
    connection = await load(environment=environment, service_account=folder)
    over_ipv6 = await load(environment={"KUBERNETES_SERVICE_HOST": "fd00::1"}, service_account=folder)

    assert connection.server == "https://10.100.0.1:443"
    assert over_ipv6.server == "https://[fd00::1]:443"
    assert connection.proxy is None
    assert connection.tls is not None
    assert await connection.credentials.authorization() == "Bearer from-file"


async def test_in_cluster_without_a_token(tmp_path: Path) -> None:
    """The sentence names the file and the remedy."""
    with pytest.raises(ConfigurationError, match="automountServiceAccountToken"):
        await load(environment={"KUBERNETES_SERVICE_HOST": "h"}, service_account=tmp_path)


async def test_a_flag_wins_over_the_cluster(folder: Path) -> None:
    """--kubeconfig overrides the environment."""
    path = kubeconfig(folder, {"token": " secret\n"})
    connection = await connect(path, KUBERNETES_SERVICE_HOST="10.0.0.1")

    assert connection.server == "https://api:6443"
    assert await connection.credentials.authorization() == "Bearer secret"


async def test_the_cluster_wins_over_a_stray_kubeconfig(folder: Path) -> None:
    """In a cluster, a kubeconfig that is not named is ignored."""
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBECONFIG": kubeconfig(folder)}
    connection = await load(environment=environment, service_account=folder)

    assert connection.server == "https://10.0.0.1:443"


async def test_a_context_by_its_name(folder: Path) -> None:
    """It replaces the current one, and means a kubeconfig even in a cluster."""
    there = {"name": "there", "context": {"cluster": "d", "user": "me"}}
    clusters = [{"name": "d", "cluster": {"server": "https://there:6443"}}]
    path = kubeconfig(folder, contexts=[there], clusters=clusters)
    environment = {"KUBERNETES_SERVICE_HOST": "10.100.0.1", "KUBECONFIG": path}

    assert (await load(context="there", environment=environment)).server == "https://there:6443"
    assert (await load(path, context="there", environment={})).server == "https://there:6443"
    with pytest.raises(ConfigurationError, match="nowhere"):
        await load(context="nowhere", environment=environment)


async def test_master_replaces_the_server(folder: Path) -> None:
    """--master replaces the kubeconfig's server, as in kube-scheduler."""
    connection = await connect(kubeconfig(folder, {"token": "t"}), "https://other:1")

    assert connection.server == "https://other:1"
    assert await connection.credentials.authorization() == "Bearer t"


async def test_a_proxy_of_the_kubeconfig_knows_no_exception(folder: Path) -> None:
    """NO_PROXY does not affect the kubeconfig's proxy."""
    cluster = {"server": "https://api", "proxy-url": "http://proxy:1"}
    path = kubeconfig(folder, clusters=[{"name": "c", "cluster": cluster}])
    connection = await connect(path, NO_PROXY="*", HTTPS_PROXY="http://other:2")

    assert connection.proxy == yarl.URL("http://proxy:1")


@pytest.mark.parametrize("path", ["/no/such/file", None])
async def test_no_kubeconfig(path: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any configuration, the error says which flags help."""
    monkeypatch.setenv("HOME", "/nowhere")
    with pytest.raises(ConfigurationError, match="--kubeconfig FILE or --master URL"):
        await connect(path)


@pytest.mark.parametrize(
    "master",
    [
        "api:6443",
        "ftp://api",
        "https://api:0",
        "https://api/a b",
        "https://me:secret@api",
        "https://me:secret@api:x",
    ],
)
async def test_masters_that_are_no_url(master: str) -> None:
    """A typing error is reported, and a password in it is not shown."""
    with pytest.raises(ConfigurationError, match="--master") as caught:
        await connect(master=master)

    assert "secret" not in str(caught.value)


async def test_a_token_in_place_of_the_users(folder: Path) -> None:
    """With a server alone, and in place of whatever the kubeconfig's user has."""
    alone = await connect(master="http://127.0.0.1:1")
    named = await load(None, "http://127.0.0.1:1", token="mine", environment={})
    instead = await load(kubeconfig(folder, {"tokenFile": "token"}), token="mine", environment={})

    assert await alone.credentials.authorization() is None
    assert await named.credentials.authorization() == await instead.credentials.authorization() == "Bearer mine"


def test_in_a_cluster_nothing_of_kubernetes_asyncio_is_imported(folder: Path) -> None:
    """It costs more memory than all that the scheduler keeps of 1,000 nodes."""
    code = f"""
import asyncio, pathlib, sys
import neuron_scheduler.app
from neuron_scheduler.kube.http import auth
environment = {{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}}
asyncio.run(auth.load(environment=environment, service_account=pathlib.Path({str(folder)!r})))
print([name for name in sys.modules if name.partition(".")[0] in ("kubernetes_asyncio", "yaml")])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"

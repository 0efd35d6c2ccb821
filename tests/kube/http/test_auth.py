"""Server and credentials come from flags first, then from the environment, and are never guessed."""

import base64
import json
import os
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.kube.http.auth import load
from neuron_scheduler.kube.http.credentials import ExecPlugin, TokenFile
from neuron_scheduler.kube.http.exec_plugin import API_VERSIONS
from neuron_scheduler.kube.http.overrides import Overrides
from neuron_scheduler.kube.http.proxy import Proxy
from tests.support.kubeconfigs import connect, furnished, kubeconfig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a CA, a client certificate and a token."""
    return furnished(tmp_path)


async def test_master_alone() -> None:
    """A plain server needs no credentials."""
    connection = await connect(master="http://127.0.0.1:8001/")

    assert connection.server == "http://127.0.0.1:8001"
    assert connection.tls is None
    assert await connection.credentials.authorization() is None


async def test_in_cluster(folder: Path) -> None:
    """The service account's files are used, and no proxy if NO_PROXY excepts the server."""
    environment = {
        "KUBERNETES_SERVICE_HOST": "10.100.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "HTTPS_PROXY": "http://proxy:3128",
        "NO_PROXY": "10.0.0.0/8",
    }
    connection = await load(environment=environment, service_account=folder)

    assert connection.server == "https://10.100.0.1:443"
    assert connection.proxy is None
    assert connection.tls is not None
    assert await connection.credentials.authorization() == "Bearer from-file"


async def test_in_cluster_over_ipv6(folder: Path) -> None:
    """An IPv6 address is bracketed."""
    connection = await load(environment={"KUBERNETES_SERVICE_HOST": "fd00::1"}, service_account=folder)

    assert connection.server == "https://[fd00::1]:443"


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


async def test_the_environment_names_a_kubeconfig(folder: Path) -> None:
    """KUBECONFIG is read when `load` is called, not when a module is imported."""
    connection = await connect(KUBECONFIG=kubeconfig(folder))

    assert connection.server == "https://api:6443"


async def test_a_context_by_its_name(folder: Path) -> None:
    """It replaces the current one, and means a kubeconfig even in a cluster."""
    there = {"name": "there", "context": {"cluster": "d"}}
    clusters = [{"name": "d", "cluster": {"server": "https://there:6443"}}]
    path = kubeconfig(folder, contexts=[there], clusters=clusters)
    environment = {"KUBERNETES_SERVICE_HOST": "10.100.0.1", "KUBECONFIG": path}

    assert (await load(overrides=Overrides(context="there"), environment=environment)).server == "https://there:6443"
    assert (await load(path, overrides=Overrides(context="there"), environment={})).server == "https://there:6443"
    with pytest.raises(ConfigurationError, match="context 'nowhere' is not among its contexts"):
        await load(overrides=Overrides(context="nowhere"), environment=environment)


async def test_master_replaces_the_server(folder: Path) -> None:
    """--master replaces the kubeconfig's server, as in kube-scheduler."""
    connection = await connect(kubeconfig(folder, {"token": "t"}), "https://other:1")

    assert connection.server == "https://other:1"
    assert await connection.credentials.authorization() == "Bearer t"


async def test_a_token_file_is_read_beside_the_kubeconfig(folder: Path) -> None:
    """Relative paths start at the kubeconfig's folder, and the token is read again later."""
    connection = await connect(kubeconfig(folder, {"tokenFile": "token"}))

    assert isinstance(connection.credentials, TokenFile)
    assert await connection.credentials.authorization() == "Bearer from-file"


async def test_client_certificates(folder: Path) -> None:
    """A client certificate and its key become part of the TLS context."""
    connection = await connect(kubeconfig(folder, {"client-certificate": "me.crt", "client-key": "me.key"}))

    assert connection.tls is not None
    assert str(folder / "me.crt") == connection.tls.cert_file


async def test_an_exec_plugin(folder: Path) -> None:
    """As for EKS: the plugin returns the token, with the arguments and variables of the kubeconfig."""
    script = 'import os; print(\'{"apiVersion": "client.authentication.k8s.io/v1beta1", "status": {"token": '
    script += "\"' + os.environ['PROFILE'] + '\"}}')"
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": sys.executable,
        "args": ["-c", script],
        "env": [{"name": "PROFILE", "value": "dev"}],
    }
    connection = await connect(kubeconfig(folder, {"exec": plugin}))

    assert isinstance(connection.credentials, ExecPlugin)
    assert await connection.credentials.authorization() == "Bearer dev"


async def test_an_exec_plugin_that_fails(folder: Path) -> None:
    """A missing plugin is an error at the start, with the kubeconfig's hint; paths start at the file's folder."""
    plugin = {"apiVersion": API_VERSIONS[0], "command": "./plugin", "installHint": "get it at example.com"}
    with pytest.raises(ConfigurationError, match=f"{folder}/plugin cannot be found; get it at example.com;"):
        await connect(kubeconfig(folder, {"exec": plugin}))


async def test_the_cluster_in_the_input_of_a_plugin(folder: Path) -> None:
    """As with client-go: the fields of client.authentication.k8s.io, the CA as data, and the entry's extension."""
    plugin = {
        "apiVersion": API_VERSIONS[0],
        "command": "./plugin",
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    script = folder / "plugin"
    script.write_text(f"#!{sys.executable}\n{ECHO}")
    script.chmod(0o700)
    cluster = {
        "server": "https://10.0.0.1/path/",
        "certificate-authority": "ca.crt",
        "tls-server-name": "api",
        "proxy-url": "http://me:secret@proxy:1",
        "disable-compression": True,
        "extensions": [
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}},
            {"name": "other"},
        ],
    }
    connection = await connect(
        kubeconfig(folder, {"exec": plugin}, clusters=[{"name": "c", "cluster": cluster}]), PATH=os.environ["PATH"]
    )

    info = json.loads((await connection.credentials.authorization() or "").removeprefix("Bearer "))
    assert info == {
        "server": "https://10.0.0.1/path",
        "certificate-authority-data": base64.b64encode((folder / "ca.crt").read_bytes()).decode(),
        "tls-server-name": "api",
        "proxy-url": "http://me:secret@proxy:1",
        "disable-compression": True,
        "config": {"audience": "x"},
    }
    assert ("Accept-Encoding", "identity") in connection.headers


ECHO = """
import json, os
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
print(json.dumps({"apiVersion": info["apiVersion"], "status": {"token": json.dumps(info["spec"]["cluster"])}}))
"""


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({"token": "t", "exec": {"command": "/no/such/plugin"}}, "Bearer t"),
        ({"tokenFile": "token", "exec": {"command": "/no/such/plugin"}}, "Bearer from-file"),
        ({"token": "t", "tokenFile": "token"}, "Bearer from-file"),
        ({"token": "t", "tokenFile": "gone"}, "Bearer t"),
        ({"username": "me", "password": "p\xe4ss"}, "Basic bWU6cMOkc3M="),
        ({"username": "me"}, "Basic bWU6"),
        ({"client-certificate": "me.crt", "client-key": "me.key", "exec": {"command": "/no/such/plugin"}}, None),
        ({"token": None, "as-groups": None, "exec": None}, None),
    ],
    ids=repr,
)
async def test_what_a_user_sends(folder: Path, user: dict[str, Any], header: str | None) -> None:
    """client-go's order: the file's token, the token, the password; a plugin only if there is nothing else."""
    connection = await connect(kubeconfig(folder, user))

    assert await connection.credentials.authorization() == header


async def test_a_user_of_a_kubeconfig_acts_as_another(folder: Path) -> None:
    """client-go's headers: groups and values repeated, the keys of extra fields escaped."""
    user = {
        "as": "J\xfcrgen",
        "as-uid": "7",
        "as-groups": ["a", "b"],
        "as-user-extra": {"example.com/Sc%pe": ["x", "y"], "~a|": ["z"]},
    }
    connection = await connect(kubeconfig(folder, user))

    assert connection.headers == (
        ("Impersonate-User", "J\xfcrgen"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-example.com%2FSc%25pe", "x"),
        ("Impersonate-Extra-example.com%2FSc%25pe", "y"),
        ("Impersonate-Extra-~a|", "z"),
    )


async def test_embedded_certificates(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Embedded certificates are used, also with a key in a file, and leave no file behind."""
    leftovers = folder / "tmp"
    leftovers.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(leftovers))
    user = {"client-certificate-data": encoded(folder / "me.crt"), "client-key": "me.key"}
    cluster = {"server": "https://api", "certificate-authority-data": encoded(folder / "ca.crt")}
    connection = await connect(kubeconfig(folder, user, clusters=[{"name": "c", "cluster": cluster}]))

    assert connection.tls is not None
    assert connection.tls.certificate() == ((folder / "me.crt").read_text(), (folder / "me.key").read_text())
    (trusted,) = connection.tls.context().get_ca_certs(binary_form=True)
    assert ssl.DER_cert_to_PEM_cert(trusted).split() == (folder / "ca.crt").read_text().split()
    assert not list(leftovers.iterdir())


def encoded(path: Path) -> str:
    """The file in base64."""
    return base64.b64encode(path.read_bytes()).decode()


async def test_a_proxy_of_the_kubeconfig_knows_no_exception(folder: Path) -> None:
    """NO_PROXY does not affect the kubeconfig's proxy."""
    cluster = {"server": "https://api", "proxy-url": "http://proxy:1"}
    path = kubeconfig(folder, clusters=[{"name": "c", "cluster": cluster}])
    connection = await connect(path, NO_PROXY="*", HTTPS_PROXY="http://other:2")

    assert connection.proxy == Proxy("http://proxy:1")


async def test_nobody(folder: Path) -> None:
    """A context without a user is anonymous."""
    path = kubeconfig(folder, contexts=[{"name": "here", "context": {"cluster": "c"}}], users=None)
    connection = await connect(path)

    assert await connection.credentials.authorization() is None


async def test_server_name_and_proxy(folder: Path) -> None:
    """Server name and proxy of the cluster entry are used."""
    cluster = {"server": "https://10.0.0.1", "tls-server-name": "api", "proxy-url": "http://proxy:1"}
    cluster["certificate-authority"] = "ca.crt"
    connection = await connect(kubeconfig(folder, clusters=[{"name": "c", "cluster": cluster}]))

    assert connection.tls is not None
    assert (connection.tls.server_name, connection.proxy) == ("api", Proxy("http://proxy:1"))


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
        "http://",
        "https://api:x",
        "https://api:0",
        "http://[::1",
        "https://a..b",
        "https://api/a b",
        "https://api?x=1",
        "https://me:secret@api",
        "https://me:secret@api:x",
    ],
)
async def test_masters_that_are_no_url(master: str) -> None:
    """A typing error is reported, and a password in it is not shown."""
    with pytest.raises(ConfigurationError, match="--master") as caught:
        await connect(master=master)

    assert "secret" not in str(caught.value)


async def test_a_scheme_in_capitals_is_tls_too() -> None:
    """HTTPS in capitals uses TLS too, instead of sending in the clear."""
    assert (await connect(master="HTTPS://api")).tls is not None


@pytest.mark.parametrize("content", [" \n", "t\xf6ken"])
async def test_in_cluster_with_an_unusable_token(folder: Path, content: str) -> None:
    """Credentials that cannot be sent are an error at the start."""
    (folder / "token").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="token"):
        await load(environment={"KUBERNETES_SERVICE_HOST": "h"}, service_account=folder)

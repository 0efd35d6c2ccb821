"""A kubeconfig is read as client-go reads it, or refused with one sentence that shows no secret."""

import base64
import json
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest
import yaml
from kubernetes_asyncio.client import Configuration

from neuron_scheduler.kube.http import kubeconfig as kubeconfig_module
from neuron_scheduler.kube.http.auth import load
from neuron_scheduler.kube.http.kubeconfig import PAUSE, KubeconfigUser
from neuron_scheduler.telemetry.errors import ConfigurationError, CredentialsError
from tests.support.clock import Clock
from tests.support.kubeconfigs import connect, furnished, kubeconfig
from tests.support.patience import PATIENCE

V1 = "client.authentication.k8s.io/v1"
EXEC = {"apiVersion": V1, "command": "/bin/true", "interactiveMode": "Never"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a CA, a client certificate and a token."""
    return furnished(tmp_path)


def cluster(**fields: Any) -> dict[str, Any]:
    """A kubeconfig's cluster with these fields too."""
    return {"clusters": [{"name": "c", "cluster": {"server": "https://a", **fields}}]}


def user(**fields: Any) -> dict[str, Any]:
    """A kubeconfig's user with these fields; a - in place of each _."""
    return {"users": [{"name": "me", "user": {key.replace("_", "-"): value for key, value in fields.items()}}]}


UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "no current context": ({"current-context": ""}, "use-context"),
    "an unknown context": ({"current-context": "there"}, "there"),
    "no such cluster": ({"clusters": []}, "name c in"),
    "no server": ({"clusters": [{"name": "c", "cluster": {"tls-server-name": "x"}}]}, "cluster 'c' has no server"),
    "a server with a password": (cluster(server="https://me:secret@api"), "names no URL of an API server"),
    "a CA that is no base64": (cluster(**{"certificate-authority-data": "secret!"}), "unusable"),
    "a SOCKS proxy": (cluster(**{"proxy-url": "socks5://me:secret@h:1"}), "proxy-url is not the URL of an HTTP proxy"),
    "a removed auth provider": (user(auth_provider={"name": "gcp"}), "auth-provider is not supported"),
    "a user that is two lines": (user(**{"as": "a\nb"}), "Impersonate-User"),
    "a token that is two lines": (user(token="secret\nsecret"), "the user's token has characters"),
    "a token file that is missing": (user(tokenFile="gone"), "/gone contains no token"),
    "an encrypted key": (user(client_certificate="me.crt", client_key="ca.crt"), "me.crt"),
    "a plugin that is not there": (
        user(exec={**EXEC, "command": "/no/such/plugin", "installHint": "get it at example.com"}),
        "/no/such/plugin cannot be found; get it at example.com",
    ),
    "a plugin that fails": (user(exec={**EXEC, "command": "/bin/false"}), "process returned 1"),
    "a user that is not one": ({"users": [{"name": "me", "usr": {"token": "secret"}}]}, "unusable"),
}


@pytest.mark.parametrize("sentence", UNUSABLE)
async def test_unusable_kubeconfigs(folder: Path, sentence: str) -> None:
    """One sentence names the file and what is wrong in it, and shows no secret."""
    changes, hint = UNUSABLE[sentence]
    with pytest.raises(ConfigurationError, match=hint) as caught:
        await connect(kubeconfig(folder, **changes))

    assert f"kubeconfig {folder}" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"a: secret: c", b"token: !secret x", b"token: '\xff'"],
    ids=repr,
)
async def test_files_that_are_no_kubeconfig(tmp_path: Path, content: bytes) -> None:
    """For any content, the error is one sentence that does not show the wrong line."""
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"kubeconfig {path} is unusable") as caught:
        await connect(str(path))

    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_no_file_exists(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One sentence says so: the library's warning of the same is not logged."""
    with pytest.raises(ConfigurationError, match=f"kubeconfig {tmp_path}/none: it does not exist; pass --kubeconfig "):
        await connect(f"{tmp_path}/none")
    assert caplog.messages == []


async def test_the_first_file_wins(tmp_path: Path) -> None:
    """For each entry and for the context; relative paths start at the entry's file; a missing file is skipped."""
    for name, context in (("one", "here"), ("two", "there")):
        (tmp_path / name).mkdir()
        contexts = [{"name": context, "context": {"cluster": "c", "user": "me", "namespace": name}}]
        changes = {"current-context": context, "contexts": contexts}
        kubeconfig(furnished(tmp_path / name), {"tokenFile": "token"}, **changes)
        (tmp_path / name / "token").write_text(name)
    first = tmp_path / "one" / "config"
    first.write_text(yaml.safe_dump({k: v for k, v in yaml.safe_load(first.read_text()).items() if k != "clusters"}))
    connection = await connect(f"{first}:/no/such/file::{tmp_path}/two/config")

    assert connection.namespace == "one"
    assert await connection.credentials.authorization() == "Bearer one"
    assert connection.tls is not None
    assert connection.tls.ca_file == f"{tmp_path}/two/ca.crt"


async def test_a_token_file_is_read_again(folder: Path) -> None:
    """As by client-go, and other than by the library."""
    clock = Clock()
    connection = await load(kubeconfig(folder, {"tokenFile": "token"}), environment={}, clock=clock)
    assert await connection.credentials.authorization() == "Bearer from-file"
    (folder / "token").write_text("newer")
    clock.now += 10
    assert await connection.credentials.authorization() == "Bearer newer"


@pytest.mark.parametrize(
    ("fields", "header"),
    [
        ({"token": " t\n"}, "Bearer t"),
        ({"token": "t", "tokenFile": "token"}, "Bearer from-file"),
        ({"username": "me", "password": "pass"}, "Basic bWU6cGFzcw=="),
        ({"client-certificate": "me.crt", "client-key": "me.key"}, None),
        ({}, None),
    ],
    ids=repr,
)
async def test_what_a_user_sends(folder: Path, fields: dict[str, Any], header: str | None) -> None:
    """A token, its file's, or a password."""
    connection = await connect(kubeconfig(folder, fields))

    assert await connection.credentials.authorization() == header


@pytest.mark.parametrize("context", [{"cluster": "c"}, {"cluster": "c", "user": ""}], ids=repr)
async def test_a_context_without_a_user(folder: Path, context: dict[str, str]) -> None:
    """As with kubectl, nothing is sent but what a flag says: the server may know us by the network, or answer all."""
    path = kubeconfig(folder, contexts=[{"name": "here", "context": context}])
    for given, header in (("", None), ("t", "Bearer t")):
        connection = await load(path, token=given, environment={})
        assert connection.server == "https://api:6443"
        assert await connection.credentials.authorization() == header
        assert await connection.credentials.renew(header) == header


async def test_a_user_acts_as_another(folder: Path) -> None:
    """client-go's headers, one for each group; a flag replaces them all."""
    path = kubeconfig(folder, {"as": "J\xfcrgen", "as-groups": ["a", "b"]})
    connection = await connect(path)

    assert connection.source.endswith("acting as J\xfcrgen")
    groups = [("Impersonate-Group", "a"), ("Impersonate-Group", "b")]
    assert [*connection.headers] == [("Impersonate-User", "J\xfcrgen"), *groups]
    other = await load(path, acting_as={"as": "jane", "as-groups": ["c"]}, environment={})
    assert other.headers == (("Impersonate-User", "jane"), ("Impersonate-Group", "c"))
    assert "acting" not in (await connect(kubeconfig(folder))).source


@pytest.mark.parametrize("embedded", [True, False])
def test_client_certificates(folder: Path, embedded: bool) -> None:
    """From files, and as data: kOps and kind write them so."""

    def field(name: str, file: str) -> dict[str, str]:
        content = base64.b64encode((folder / file).read_bytes()).decode()
        return {f"{name}-data": content} if embedded else {name: file}

    fields = field("client-certificate", "me.crt") | field("client-key", "me.key")
    path = kubeconfig(
        folder, fields, **cluster(**field("certificate-authority", "ca.crt"), **{"tls-server-name": "api"})
    )
    connection = anyio.run(connect, path)

    tls = connection.tls
    assert tls is not None
    assert len(tls.context().get_ca_certs()) == 1
    for used, file in ((tls.cert_file, "me.crt"), (tls.key_file, "me.key")):
        assert used is not None
        assert Path(used).read_bytes() == (folder / file).read_bytes()
        assert Path(used).stat().st_mode & 0o77 == 0 or not embedded
    assert (tls.server_name, tls.verify) == ("api", True)


async def test_an_exec_plugin(folder: Path) -> None:
    """As for EKS: the plugin returns the token, with the arguments and variables of the kubeconfig."""
    script = f"""
import json, os
assert json.loads(os.environ["KUBERNETES_EXEC_INFO"])["apiVersion"] == "{V1}"
print(json.dumps({{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {{"token": os.environ["PROFILE"]}}}}))
"""
    plugin = {
        "apiVersion": V1,
        "command": sys.executable,
        "args": ["-c", script],
        "env": [{"name": "PROFILE", "value": "dev"}],
    }
    connection = await connect(kubeconfig(folder, {"exec": plugin}))

    assert await connection.credentials.authorization() == "Bearer dev"


async def test_a_plugin_that_gives_a_certificate(folder: Path) -> None:
    """It is used for TLS, and there is no header."""
    status = {
        "clientCertificateData": (folder / "me.crt").read_text(),
        "clientKeyData": (folder / "me.key").read_text(),
    }
    credential = {"apiVersion": V1, "kind": "ExecCredential", "status": status}
    plugin = {**EXEC, "command": "/bin/echo", "args": [json.dumps(credential)]}
    connection = await connect(kubeconfig(folder, {"exec": plugin}))

    assert await connection.credentials.authorization() is None
    assert connection.tls is not None
    assert connection.tls.cert_file is not None
    assert await anyio.Path(connection.tls.cert_file).read_text() == status["clientCertificateData"]


@attrs.define(eq=False)
class Plugin:
    """A plugin that gives these tokens, or fails."""

    results: list[str | Exception]
    runs: int = 0

    async def __call__(self) -> Configuration:
        """Run once."""
        self.runs += 1
        await anyio.lowlevel.checkpoint()
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        settings = Configuration()
        settings.api_key["BearerToken"] = f"Bearer {result}"
        return settings


async def test_a_rejected_token_is_replaced_once_in_a_while() -> None:
    """One run for all requests, and none for a pause where a server rejects every token."""
    clock, plugin = Clock(), Plugin(["one", "one", "two"])
    credentials = KubeconfigUser(plugin, clock)
    await credentials.start()
    assert await credentials.renew("Bearer one") == "Bearer one"
    headers: list[str | None] = []

    async def ask() -> None:
        headers.append(await credentials.renew("Bearer one"))

    for runs in (2, 3):
        clock.now += PAUSE
        async with anyio.create_task_group() as tasks:
            for _ in range(400):
                tasks.start_soon(ask)
        assert plugin.runs == runs
    assert headers == ["Bearer one"] * 400 + ["Bearer two"] * 400
    assert await credentials.authorization() == "Bearer two"


async def test_a_failing_plugin_keeps_the_old_token(caplog: pytest.LogCaptureFixture) -> None:
    """It is run again after a pause, not for each request; the log says why the server answers 401."""
    caplog.set_level("INFO")
    clock, plugin = Clock(), Plugin(["one", CredentialsError("plugin failed"), RuntimeError("again"), "two"])
    credentials = KubeconfigUser(plugin, clock)
    await credentials.start()
    for header in ("Bearer one", "Bearer one", "Bearer two"):
        clock.now += PAUSE
        for _ in range(40):
            assert await credentials.renew("Bearer one") == header
    assert plugin.runs == 4
    assert [record.message for record in caplog.records] == [
        "Credential plugin fails",
        "Credential plugin works again",
    ]


async def test_a_plugin_that_hangs(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends after a while: else every request that is rejected would wait for ever, also those without a limit."""
    monkeypatch.setattr(kubeconfig_module, "LONGEST_RUN", 0.01)
    clock, answered = Clock(), list[float]()

    async def plugin() -> Configuration:
        if answered:
            await anyio.sleep_forever()
        answered.append(clock.now)
        settings = Configuration()
        settings.api_key["BearerToken"] = "Bearer one"
        return settings

    credentials = KubeconfigUser(plugin, clock)
    await credentials.start()
    clock.now += PAUSE
    with anyio.fail_after(PATIENCE):
        assert await credentials.renew("Bearer one") == "Bearer one"
    assert "Credential plugin fails" in caplog.text

"""A kubeconfig is read as client-go reads it, and refused with one sentence that shows no secret."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization

from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.kube.http.exec_plugin import API_VERSIONS
from neuron_scheduler.kube.http.kubeconfig import read
from tests.support.kubeconfigs import connect, furnished, kubeconfig

EXEC = {"apiVersion": API_VERSIONS[0], "command": "/bin/true"}
GARBAGE = "c2VjcmV0"  # base64, but of no PEM


def cluster(**fields: Any) -> dict[str, Any]:
    """A kubeconfig's cluster with these fields too."""
    return {"clusters": [{"name": "c", "cluster": {"server": "https://a", **fields}}]}


def user(**fields: Any) -> dict[str, Any]:
    """A kubeconfig's user with these fields; a - in place of each _."""
    return {"users": [{"name": "me", "user": {key.replace("_", "-"): value for key, value in fields.items()}}]}


UNUSABLE: dict[str, tuple[dict[str, Any], str]] = {
    "no current context": ({"current-context": ""}, "use-context"),
    "an unknown context": ({"current-context": "there"}, r"'there' is not among its contexts \(here\)"),
    "no such cluster": ({"clusters": []}, r"'c' is not among its clusters \(there are none\)"),
    "no such user": ({"users": None}, "'me' is not among its users"),
    "two of a name": ({"users": [{"name": "me"}, {"name": "me"}]}, "user 'me' is defined twice"),
    "an empty cluster": ({"clusters": [{"name": "c"}]}, "URL"),
    "no server": ({"clusters": [{"name": "c", "cluster": {"tls-server-name": "x"}}]}, "URL"),
    "a server that is no URL": (cluster(server="api:6443"), "not the URL"),
    "a server with a password": (cluster(server="https://me:secret@api"), "contains a user name or password"),
    "a CA that is missing": (cluster(**{"certificate-authority": "gone.crt"}), "gone.crt"),
    "a CA that is empty": (cluster(**{"certificate-authority": "empty"}), "/empty"),
    "a CA that is garbage": (
        cluster(**{"certificate-authority-data": GARBAGE}),
        "certificate-authority-data contains no PEM",
    ),
    "a CA that is no base64": (cluster(**{"certificate-authority-data": "secret!"}), "not base64"),
    "a CA that looks like PEM": (
        cluster(**{"certificate-authority-data": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="}),
        "certificates",
    ),
    "two CAs": (
        cluster(**{"certificate-authority": "ca.crt", "certificate-authority-data": GARBAGE}),
        "certificate-authority and certificate-authority-data",
    ),
    "a CA that is not asked": (
        cluster(**{"certificate-authority": "ca.crt", "insecure-skip-tls-verify": True}),
        "insecure-skip-tls-verify",
    ),
    "a boolean that is a text": (
        cluster(**{"insecure-skip-tls-verify": "yes please"}),
        r"cluster 'c': Expected `bool`",
    ),
    "a SOCKS proxy": (cluster(**{"proxy-url": "socks5://me:secret@h:1"}), "proxy-url: .*SOCKS"),
    "a proxy that is no URL": (cluster(**{"proxy-url": "http://me:secret@h:x"}), "proxy-url: 'http://[*]+@h:x'"),
    "a removed auth provider": (user(auth_provider={"name": "gcp"}), "auth-provider 'gcp'"),
    "groups without a user": (user(as_groups=["g"]), "need `as`"),
    "extra without a user": (user(as_user_extra={"k": ["v"]}), "need `as`"),
    "a user that is two lines": (user(**{"as": "a\nb"}), "Impersonate-User"),
    "a group that is two lines": (user(**{"as": "a", "as-groups": ["a\r"]}), "Impersonate-Group"),
    "a token and a name": (user(token="secret", username="me", password="secret"), "keep one"),
    "a token that is a number": (user(token=17), "user 'me': Expected `str`, got `int` - at `\\$.token`"),
    "a token that is two lines": (user(token="secret\nsecret"), "the user's token has characters"),
    "a token file that is missing": (user(tokenFile="gone"), "/gone contains no token"),
    "a token file that is a folder": (user(tokenFile="."), "contains no token"),
    "a certificate without its key": (user(client_certificate="me.crt"), "needs its key"),
    "a key without its certificate": (user(client_key="me.key"), "needs its key|its certificate"),
    "a certificate that is garbage": (
        user(client_certificate_data=GARBAGE, client_key="me.key"),
        "client-certificate-data contains no PEM",
    ),
    "an encrypted key": (user(client_certificate="me.crt", client_key="encrypted.key"), "encrypted.key"),
    "a certificate and a key of another": (user(client_certificate="me.crt", client_key="ca.crt"), "me.crt"),
    "a plugin without a command": (user(exec={**EXEC, "command": ""}), "no command"),
    "a plugin of no version": (user(exec={**EXEC, "apiVersion": "v1"}), "apiVersion 'v1'"),
    "a plugin that needs a terminal": (
        user(exec={**EXEC, "interactiveMode": "Always"}),
        "'Always', and .* no terminal",
    ),
    "a plugin that grants nothing": (user(exec=EXEC), "did not print an ExecCredential"),
    "a variable that is a list": (user(exec={**EXEC, "env": [{"name": "A", "value": ["secret"]}]}), "exec.env"),
    "clusters that are no list": ({"clusters": 3}, "it is not a kubeconfig"),
    "a user that is a text": ({"users": [{"name": "me", "user": "secret"}]}, "Expected `object`"),
}


def encrypted(key: bytes) -> bytes:
    """The private key, encrypted with a password."""
    loaded = serialization.load_pem_private_key(key, None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    return loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


@pytest.mark.parametrize("sentence", UNUSABLE)
async def test_unusable_kubeconfigs(tmp_path: Path, sentence: str) -> None:
    """One sentence names the file and what is wrong in it, and shows no secret."""
    changes, hint = UNUSABLE[sentence]
    (furnished(tmp_path) / "empty").touch()
    (tmp_path / "encrypted.key").write_bytes(encrypted((tmp_path / "me.key").read_bytes()))
    with pytest.raises(ConfigurationError, match=hint) as caught:
        await connect(kubeconfig(tmp_path, **changes))

    assert "kubeconfig" in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"- a list",
        b"{",
        b"a: secret: c",
        b"token: *secret",
        b"token: !secret x",
        b"token: '\xff'",
        b"? [secret]\n: x",
        b"---\n---\n",
        b"[" * 5000,
        b"when: 2024-99-99",
    ],
    ids=lambda content: repr(content[:20]),
)
async def test_files_that_are_no_kubeconfig(tmp_path: Path, content: bytes) -> None:
    """For any content, the error is one sentence that does not show the wrong line."""
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="kubeconfig") as caught:
        await connect(str(path))

    assert "secret" not in str(caught.value)


async def test_a_folder_is_no_kubeconfig(tmp_path: Path) -> None:
    """The error of the system is shown."""
    with pytest.raises(ConfigurationError, match="Is a directory"):
        await connect(str(tmp_path))


def test_the_first_file_wins(tmp_path: Path) -> None:
    """The first file wins for each entry; relative paths start at the entry's file; a missing file is skipped."""
    for name, token in (("one", "1"), ("two", "2")):
        (tmp_path / name).mkdir()
        kubeconfig(tmp_path / name, {"tokenFile": token})
    first = tmp_path / "one" / "config"
    first.write_text(yaml.safe_dump({"users": yaml.safe_load(first.read_text())["users"]}))
    config = read(f"{first}:/no/such/file::{tmp_path}/two/config")

    assert config.user.token_file == f"{tmp_path}/one/1"
    assert config.cluster.certificate_authority == f"{tmp_path}/two/ca.crt"


def test_a_command_on_the_path_is_left_alone(tmp_path: Path) -> None:
    """A command is a path only if it has a slash."""
    plugin = read(kubeconfig(tmp_path, {"exec": {"command": "aws"}})).user.exec

    assert plugin is not None
    assert plugin.command == "aws"


def test_a_file_that_can_be_read_once(tmp_path: Path) -> None:
    """`--kubeconfig <(...)` is a pipe."""
    content = Path(kubeconfig(tmp_path)).read_bytes()
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    try:
        assert read(f"/dev/fd/{reading}").cluster.server == "https://api:6443"
    finally:
        os.close(reading)

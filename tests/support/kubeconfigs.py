"""Kubeconfigs, the files that they name, and the connections that they lead to."""

from pathlib import Path
from typing import Any

import trustme
import yaml

from neuron_scheduler.kube.http.auth import Connection, load


def furnished(folder: Path) -> Path:
    """Put a CA, a client certificate and a token into a folder."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.crt")
    certificate = authority.issue_cert("me@example.com")
    certificate.cert_chain_pems[0].write_to_path(folder / "me.crt")
    certificate.private_key_pem.write_to_path(folder / "me.key")
    (folder / "token").write_text("from-file\n")
    return folder


def kubeconfig(folder: Path, user: dict[str, Any] | None = None, **changes: Any) -> str:
    """Write a kubeconfig whose one context leads to https://api:6443, and return its path."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "me"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443", "certificate-authority": "ca.crt"}}],
        "users": [{"name": "me", "user": user or {}}],
        **changes,
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(document))
    return str(path)


async def connect(path: str | None = None, master: str | None = None, **environment: str) -> Connection:
    """Load it in an environment without any other variable."""
    return await load(path, master, environment={"HOME": "/nowhere", **environment})

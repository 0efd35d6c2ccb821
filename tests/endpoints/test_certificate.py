"""A renewed certificate is used, and a broken one is not."""

import os
from pathlib import Path

import pytest
import trustme

from neuron_scheduler.endpoints.certificate import Certificate
from neuron_scheduler.errors import ConfigurationError


def issue(folder: Path, authority: trustme.CA, *, key: bool = True) -> None:
    """Write a certificate for 127.0.0.1, and its key unless the old key stays."""
    issued = authority.issue_cert("127.0.0.1")
    (folder / "new").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    os.replace(folder / "new", folder / "tls.crt")  # noqa: PTH105 - as whoever renews it does
    if key:
        (folder / "new").write_bytes(issued.private_key_pem.bytes())
        os.replace(folder / "new", folder / "tls.key")  # noqa: PTH105 - as above


def test_renewal(tmp_path: Path) -> None:
    """A context is kept while the files are the same, replaced after a renewal, and kept if the files do not match."""
    authority = trustme.CA()
    issue(tmp_path, authority)
    certificate = Certificate(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    first = certificate.context()
    assert certificate.context() is first
    issue(tmp_path, authority)
    second = certificate.context()
    assert second is not first
    issue(tmp_path, authority, key=False)
    assert certificate.context() is second
    (tmp_path / "tls.key").unlink()
    assert certificate.context() is second
    issue(tmp_path, authority)
    assert certificate.context() not in (first, second)


def test_no_certificate(tmp_path: Path) -> None:
    """The error for missing files has their flags and paths."""
    with pytest.raises(ConfigurationError, match=r"cannot use --tls-cert-file .*/a with --tls-private-key-file .*/b: "):
        Certificate(str(tmp_path / "a"), str(tmp_path / "b"))

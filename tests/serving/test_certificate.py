"""A renewed certificate is used, and a broken one is not."""

import os
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from neuron_scheduler.serving.certificate import Certificate
from neuron_scheduler.telemetry.errors import ConfigurationError


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
    flags = "--extender-tls-cert-file .* with --extender-tls-private-key-file .* and --extender-client-ca-file .*/c: "
    with pytest.raises(ConfigurationError, match=flags):
        Certificate(str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "c"), flags="--extender-tls")


@pytest.mark.parametrize(
    ("version", "served"),
    [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_are_refused(tmp_path: Path, version: ssl.TLSVersion, *, served: bool) -> None:
    """A client that offers nothing newer than TLS 1.1 gets no connection, whatever ciphers it knows."""
    authority = trustme.CA()
    issue(tmp_path, authority)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.set_ciphers("ALL:@SECLEVEL=0")
    client.minimum_version = client.maximum_version = version
    authority.configure_trust(client)
    ours = Certificate(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key")).context()
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1"),
        ours.wrap_bio(to_server, to_client, server_side=True),
    ]

    def shake_hands() -> None:
        for _ in range(4):
            for end in ends:
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()

    if served:
        shake_hands()
        assert {end.version() for end in ends} == {version.name.replace("_", ".")}
    else:
        with pytest.raises(ssl.SSLError, match=r"(?i)unsupported.protocol"):
            shake_hands()

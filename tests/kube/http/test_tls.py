"""Certificates are reloaded when they change."""

import ssl
from pathlib import Path

import pytest
import trustme

from neuron_scheduler.kube.http.tls import Tls
from neuron_scheduler.telemetry.errors import ConfigurationError
from tests.support.clock import Clock


def issued(tls: Tls) -> set[str]:
    """The serial numbers of the trusted certificates."""
    return {str(certificate["serialNumber"]) for certificate in tls.context().get_ca_certs()}


def test_a_changed_ca_is_trusted(tmp_path: Path) -> None:
    """The context stays while the file does, which is checked every few seconds, and is new when it is replaced."""
    path, clock = tmp_path / "ca.crt", Clock()
    trustme.CA().cert_pem.write_to_path(path)
    tls = Tls(clock=clock, ca_file=str(path))
    before, context = issued(tls), tls.context()
    clock.now += 10
    assert context is tls.context()

    trustme.CA().cert_pem.write_to_path(path)
    assert context is tls.context()
    clock.now += 10
    assert before != issued(tls)


def test_a_broken_ca_keeps_the_last(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A half-written file does not replace the context; if it stays half-written, that is logged once."""
    path, clock = tmp_path / "ca.crt", Clock()
    trustme.CA().cert_pem.write_to_path(path)
    tls = Tls(clock=clock, ca_file=str(path))
    context = tls.context()
    path.write_text("-----BEGIN")
    for _ in range(3):
        clock.now += 10
        assert context is tls.context()
    assert len(caplog.records) == 1
    path.unlink()
    clock.now += 10
    assert context is tls.context()
    assert len(caplog.records) == 2


@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_no_ca_from_the_start(tmp_path: Path, content: str | None) -> None:
    """The error names the file."""
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match=r"ca\.crt:"):
        Tls(clock=Clock(), ca_file=str(path)).context()


def test_verification_can_be_turned_off() -> None:
    """`insecure-skip-tls-verify` is honoured."""
    context = Tls(clock=Clock(), verify=False).context()

    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
    assert Tls(clock=Clock()).context().verify_mode == ssl.CERT_REQUIRED


def test_client_certificates(tmp_path: Path) -> None:
    """A new one gives a new context; one that cannot be read is an error that says whose it is."""
    clock, both = Clock(), tmp_path / "both.pem"
    trustme.CA().issue_cert("me@example.com").private_key_and_cert_chain_pem.write_to_path(both)
    tls = Tls(clock=clock, cert_file=str(both))
    context = tls.context()
    trustme.CA().issue_cert("me@example.com").private_key_and_cert_chain_pem.write_to_path(both)
    clock.now += 10
    assert context is not tls.context()

    both.write_text("x")
    with pytest.raises(ConfigurationError, match=r"both\.pem, context x:"):
        Tls(clock=Clock(), cert_file=str(both), origin="context x").context()

"""Certificates are reloaded when they change, and a proxy is chosen as Go chooses it."""

import ssl
from pathlib import Path

import attrs
import pytest
import trustme

from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.kube.tls import Tls, proxy_for


@attrs.define(eq=False)
class Clock:
    """Seconds that pass when told to."""

    now: float = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def issued(tls: Tls) -> set[str]:
    """The serial numbers of what is trusted."""
    return {str(found["serialNumber"]) for found in tls.context().get_ca_certs()}


def test_a_changed_ca_is_trusted(tmp_path: Path) -> None:
    """The context is the same while the file is, looked at every few seconds, and new when it is replaced."""
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


def test_a_broken_ca_keeps_the_last(tmp_path: Path) -> None:
    """A half-written file is a moment."""
    path, clock = tmp_path / "ca.crt", Clock()
    trustme.CA().cert_pem.write_to_path(path)
    tls = Tls(clock=clock, ca_file=str(path))
    context = tls.context()
    path.write_text("-----BEGIN")
    clock.now += 10
    assert context is tls.context()
    path.unlink()
    clock.now += 10
    assert context is tls.context()


@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_no_ca_from_the_start(tmp_path: Path, content: str | None) -> None:
    """The error names the file."""
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match=r"ca\.crt"):
        Tls(clock=Clock(), ca_file=str(path)).context()


def test_verification_can_be_turned_off() -> None:
    """`insecure-skip-tls-verify` is honoured."""
    context = Tls(clock=Clock(), verify=False).context()

    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
    assert Tls(clock=Clock()).context().verify_mode == ssl.CERT_REQUIRED


def test_client_certificates(tmp_path: Path) -> None:
    """From files, or from a plugin, whose new certificate gives a new context."""
    found = trustme.CA().issue_cert("me@example.com")
    cert, key = found.cert_chain_pems[0], found.private_key_pem
    found.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    Tls(clock=Clock(), cert_file=str(tmp_path / "both.pem")).context()

    clock = Clock()
    pairs = [(cert.bytes().decode(), key.bytes().decode())]
    tls = Tls(clock=clock, certificate=lambda: pairs[-1])
    context = tls.context()
    other = trustme.CA().issue_cert("me@example.com")
    pairs.append((other.cert_chain_pems[0].bytes().decode(), other.private_key_pem.bytes().decode()))
    clock.now += 10
    assert context is not tls.context()

    with pytest.raises(ConfigurationError, match="plugin"):
        Tls(clock=Clock(), certificate=lambda: ("x", "y")).context()


PROXY = {"HTTPS_PROXY": "http://proxy:3128"}
PROXIES: dict[str, tuple[str, dict[str, str], str | None]] = {
    "none set": ("https://api:6443", {}, None),
    "set": ("https://api:6443", PROXY, "http://proxy:3128"),
    "in lower case": ("https://api", {"https_proxy": "http://proxy"}, "http://proxy"),
    "without a scheme": ("https://api", {"HTTPS_PROXY": "proxy:3128"}, "http://proxy:3128"),
    "for another scheme": ("http://api", PROXY, None),
    "loopback": ("https://127.0.0.1:6443", PROXY, None),
    "loopback, IPv6": ("https://[::1]:6443", PROXY, None),
    "localhost": ("https://localhost:6443", PROXY, None),
    "an excepted network": ("https://10.100.0.1", {**PROXY, "NO_PROXY": "x, 10.0.0.0/8"}, None),
    "another network": ("https://10.100.0.1", {**PROXY, "NO_PROXY": "192.168.0.0/16"}, "http://proxy:3128"),
    "an excepted address": ("https://10.100.0.1", {**PROXY, "no_proxy": "10.100.0.1"}, None),
    "an excepted domain": ("https://a.eks.amazonaws.com", {**PROXY, "NO_PROXY": ".amazonaws.com"}, None),
    "an excepted domain without a dot": ("https://a.x.com", {**PROXY, "NO_PROXY": "x.com"}, None),
    "a wildcard domain": ("https://a.x.com", {**PROXY, "NO_PROXY": "*.x.com"}, None),
    "a name that only ends alike": ("https://ax.com", {**PROXY, "NO_PROXY": "x.com"}, "http://proxy:3128"),
    "an excepted port": ("https://x.com:6443", {**PROXY, "NO_PROXY": "x.com:6443"}, None),
    "another port": ("https://x.com:443", {**PROXY, "NO_PROXY": "x.com:6443"}, "http://proxy:3128"),
    "everything": ("https://x.com", {**PROXY, "NO_PROXY": "*"}, None),
}


@pytest.mark.parametrize("sentence", PROXIES)
def test_proxies(sentence: str) -> None:
    """The environment decides, once."""
    url, environment, want = PROXIES[sentence]

    assert want == proxy_for(url, environment)

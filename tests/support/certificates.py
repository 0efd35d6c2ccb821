"""
Certificates as EKS makes them: neither authority nor server has a key identifier.

Go accepts them. OpenSSL's strict mode, which Python 3.13 turns on by default, refuses them.
"""

import datetime as dt
import functools
import ipaddress
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = dt.timedelta(days=1)


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


@attrs.frozen
class Issued:
    """
    A certificate and its key, PEM.

    Attributes:
        chain: the certificate, then its authority's.
    """

    chain: bytes
    key: bytes

    def write(self, certificate: Path, key: Path) -> None:
        """Write them to files."""
        certificate.write_bytes(self.chain)
        key.write_bytes(self.key)

    def serving(self, folder: Path) -> ssl.SSLContext:
        """Return the context of a server with this certificate; `folder` is where its files are left."""
        certificate, key = folder / "serving.crt", folder / "serving.key"
        self.write(certificate, key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context


@attrs.frozen
class Authority:
    """A certificate authority."""

    _key: ec.EllipticCurvePrivateKey = attrs.field(factory=_key, repr=False)
    _certificate: x509.Certificate = attrs.field(repr=False)

    @_certificate.default
    def _self_signed(self) -> x509.Certificate:
        return _authority("kubernetes", self._key, "kubernetes", self._key)

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(Encoding.PEM)

    def below(self) -> "Authority":
        """Return an intermediate authority."""
        key = _key()
        return Authority(key, _authority("between", key, "kubernetes", self._key))

    def issue(self, *names: str, expired: bool = False, for_clients: bool = False) -> Issued:
        """Return a server's certificate for host names and addresses, valid from a week ago; or one for clients too."""
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, *([ExtendedKeyUsageOID.CLIENT_AUTH] if for_clients else [])]
        key, now = _key(), dt.datetime.now(dt.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_named("kube-apiserver"))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 7 * DAY)
            .not_valid_after(now - DAY if expired else now + DAY)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(list(map(_alternative, names))), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        chain = certificate.public_bytes(Encoding.PEM) + self.pem
        return Issued(chain, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _authority(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, issuer_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 30 * DAY)
        .not_valid_after(now + 30 * DAY)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(issuer_key, hashes.SHA256())
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def strict(make: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    """Return a function that makes a context with the flags of Python 3.13."""

    @functools.wraps(make)
    def made(*arguments: Any, **options: Any) -> ssl.SSLContext:
        context = make(*arguments, **options)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
        return context

    return made


def trusting(ca_file: Path) -> ssl.SSLContext:
    """Return a client's context that accepts such certificates, in every Python."""
    context = ssl.create_default_context(cafile=ca_file)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context

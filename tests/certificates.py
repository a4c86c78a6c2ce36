"""Certificates for receivers that speak TLS, good and bad ones."""

import ssl
from datetime import UTC, datetime, timedelta
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class Authority:
    """A certificate authority of a test's own; its files go into `folder`."""

    def __init__(self, folder: Path) -> None:
        """Make its key."""
        self._folder = folder
        self._key = generate_private_key(SECP256R1())

    @cached_property
    def _certificate(self) -> x509.Certificate:
        return self._issue("Test authority", self._key, (-DAY, DAY), authority=True)

    @property
    def pem(self) -> bytes:
        """Its certificate, for those who are to trust it."""
        return self._certificate.public_bytes(Encoding.PEM)

    def server(
        self, *names: str, valid: tuple[timedelta, timedelta] = (-DAY, DAY), self_signed: bool = False
    ) -> ssl.SSLContext:
        """The TLS side of a receiver with a certificate for these names; `valid` is relative to now."""
        key = generate_private_key(SECP256R1())
        certificate = self._issue(names[0], key, valid, names=names, self_signed=self_signed)
        path = self._folder / f"{certificate.serial_number:x}.pem"
        path.write_bytes(
            certificate.public_bytes(Encoding.PEM)
            + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _issue(
        self,
        name: str,
        key: EllipticCurvePrivateKey,
        valid: tuple[timedelta, timedelta],
        *,
        names: tuple[str, ...] = (),
        authority: bool = False,
        self_signed: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(name if self_signed else "Test authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + valid[0])
            .not_valid_after(now + valid[1])
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_san(one) for one in names]), critical=False)
        return builder.sign(key if self_signed else self._key, hashes.SHA256())


def _san(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)

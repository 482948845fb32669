"""Certificates for the tests alone."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True, kw_only=True)
class Signed:
    """Files of a certificate and of its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates of servers at an IP address, and of clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("an authority for tests")
        made = _begun(self._name, self._name, self._key)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.path = folder / "authority.pem"
        self.path.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str, address: str = "") -> Signed:
        key = ec.generate_private_key(ec.SECP256R1())
        made = _begun(_named(name), self._name, key)
        if address:
            of_address = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
            made = made.add_extension(of_address, critical=False)
        signed = Signed(certificate=self.folder / f"{name}.pem", key=self.folder / f"{name}.key")
        signed.certificate.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        signed.key.touch(mode=0o600)  # PostgreSQL takes no key that others may read
        signed.key.write_bytes(_written(key))
        return signed


def certificate_of(address: str, folder: Path) -> Path:
    """A file with a self-signed certificate of this IP address and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named(address)
    of_address = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
    certificate = _begun(name, name, key).add_extension(of_address, critical=False).sign(key, hashes.SHA256())
    path = folder / "certificate.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + _written(key))
    return path


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _begun(name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _written(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )

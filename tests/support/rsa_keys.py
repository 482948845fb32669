"""RSA keys of tests, by name. A process makes each of them once, and only where a test asks for it: that takes longer than most tests."""

from functools import cache

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

OURS = "ours"


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(name: str = OURS) -> str:
    """As GitHub gives it."""
    return rsa_key(name).private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()

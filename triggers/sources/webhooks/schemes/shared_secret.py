"""Base classes for providers that share a secret with their receivers: SharedSecret, and SignedBody for those that sign
only the body.
"""

import base64
import hmac
import secrets as random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, TypeVar

from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Sample, Scheme

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """No settings: the provider defines everything."""


class SharedSecret(Scheme[S]):
    """A secret that is used as it is shown."""

    def clean_secret(self, secret: str) -> str:
        if not secret.strip():
            raise InvalidSettings(
                {"secret": f"must not be empty: enter the {self.secret_label.lower()} of {self.label}"}
            )
        return secret.strip()

    def new_secret(self) -> str:
        return random.token_hex(32)


class SignedBody(SharedSecret[S]):
    """An HMAC-SHA256 of the body in one header."""

    signature_header: ClassVar[str]
    signature_prefix: ClassVar[str] = ""
    is_base64: ClassVar[bool] = False
    required_headers: ClassVar[tuple[str, ...]] = ()

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: S) -> Proof:
        given = delivery.headers.get(self.signature_header)
        if not given:
            raise Rejected(f"{self.signature_header} is missing: the webhook has no secret at {self.label}")
        for name in self.required_headers:
            if not delivery.headers.get(name):
                raise Rejected(f"{name} is missing")

        def proves(secret: bytes) -> bool:
            return hmac.compare_digest(self.signature(secret, delivery.body).encode(), given)

        return Proof(secret=matching_secret(secrets, proves))

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: S) -> Mapping[str, str]:
        return {self.signature_header: self.signature(secret, sample.body)}

    def leaves_id_unsigned(self, settings: S) -> bool:
        return True

    def signature(self, secret: bytes, body: bytes) -> str:
        digest = hmac.digest(secret, body, "sha256")
        return self.signature_prefix + (base64.b64encode(digest).decode() if self.is_base64 else digest.hex())

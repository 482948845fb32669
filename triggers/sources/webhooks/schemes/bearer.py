import hmac
import secrets as random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, TypeVar

from triggers.sources.http.payload import read_payload
from triggers.sources.kind import Group, register
from triggers.sources.settings import InvalidSettings, required_header_name, setting
from triggers.sources.webhooks.naming import Naming, describe_by, sample_by
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Description, Sample, Scheme

S = TypeVar("S")


class SentToken(Scheme[S]):
    """A token in a header: it authenticates the sender, but not the body."""

    sent_in: ClassVar[str] = "Authorization"

    def header(self, settings: S) -> str:
        """The header with the token: after the word Bearer in Authorization, alone in any other."""
        return self.sent_in

    def clean_secret(self, secret: str) -> str:
        token = secret.strip()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise InvalidSettings({"secret": "must be printable ASCII without spaces, as it travels in a header"})
        return token

    def new_secret(self) -> str:
        return random.token_urlsafe(32)

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: S) -> Proof:
        token = _token(delivery, self.header(settings))
        return Proof(secret=matching_secret(secrets, lambda secret: hmac.compare_digest(secret, token)))

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: S) -> Mapping[str, str]:
        header = self.header(settings)
        return {header: ("Bearer " if _is_bearer(header) else "") + secret.decode()}

    def secret_headers(self, settings: S) -> frozenset[str]:
        return frozenset({self.header(settings)})


@dataclass(frozen=True, kw_only=True)
class BearerSettings(Naming):
    """The header with the token."""

    header: str = setting(
        "Authorization",
        "Token header",
        "“Authorization” expects “Bearer” and the token; any other header holds the token alone.",
        check=required_header_name,
    )


@register
class Bearer(SentToken[BearerSettings]):
    """A shared token in a header that the operator names."""

    name = "bearer"
    label = "Bearer token"
    help_text = "For senders that cannot sign but can send a secret header. Use it over https only."
    group = Group.ANY_SENDER
    setup = (
        "At the sender, enter {url} as the address of the webhook.",
        "Let it send the secret of this source in the token header: after the word Bearer if the header is Authorization.",
    )
    secret_label = "Token"
    settings_class = BearerSettings

    def header(self, settings: BearerSettings) -> str:
        return settings.header

    def describe(self, delivery: Delivery, proof: Proof, settings: BearerSettings) -> Description:
        return describe_by(settings, delivery, proof, read_payload(delivery.body))

    def sample(self, settings: BearerSettings) -> Sample:
        return sample_by(settings)


def _token(delivery: Delivery, header: str) -> bytes:
    token = delivery.headers.bearer() if _is_bearer(header) else delivery.headers.get(header, b"").strip()
    if not token:
        raise Rejected("Authorization holds no Bearer token" if _is_bearer(header) else f"{header} holds no token")
    return token


def _is_bearer(header: str) -> bool:
    return header.lower() == "authorization"

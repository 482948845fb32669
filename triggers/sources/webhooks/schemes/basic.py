import base64
import binascii
import hmac
import secrets as random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from triggers.sources.http.payload import read_payload
from triggers.sources.kind import Group, register
from triggers.sources.settings import InvalidSettings, setting
from triggers.sources.webhooks.naming import Naming, describe_by, sample_by
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Description, Sample, Scheme


def _user_error(value: str) -> str:
    # RFC 7617 §2: the first colon ends the user name.
    return "" if value and value.isprintable() and ":" not in value else "must be a name without a colon"


@dataclass(frozen=True, kw_only=True)
class BasicSettings(Naming):
    """The user name; the password is the secret."""

    user: str = setting("wakeful", "User name", "The name that the sender logs in with.", check=_user_error)


@register
class Basic(Scheme[BasicSettings]):
    """User name and password (RFC 7617): they authenticate the sender, but not the body."""

    name = "basic"
    label = "User name and password"
    help_text = "For senders that can only log in with HTTP basic authentication. Use it over https only."
    group = Group.ANY_SENDER
    setup = (
        "At the sender, enter {url} as the address of the webhook.",
        "Choose basic authentication, and enter the user name and the password of this source.",
        "If the sender has no such fields, write both into the address: https://user:password@… .",
    )
    secret_label = "Password"
    settings_class = BasicSettings

    def clean_secret(self, secret: str) -> str:
        if not secret.strip() or not secret.isprintable():
            raise InvalidSettings({"secret": "must be printable text: enter the password that the sender logs in with"})
        return secret

    def new_secret(self) -> str:
        return random.token_urlsafe(32)

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: BasicSettings) -> Proof:
        credentials = _credentials(delivery.headers.get("authorization", b""))

        def proves(secret: bytes) -> bool:
            return hmac.compare_digest(b"%b:%b" % (settings.user.encode(), secret), credentials)

        return Proof(secret=matching_secret(secrets, proves))

    def describe(self, delivery: Delivery, proof: Proof, settings: BasicSettings) -> Description:
        return describe_by(settings, delivery, proof, read_payload(delivery.body))

    def sample(self, settings: BasicSettings) -> Sample:
        return sample_by(settings)

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: BasicSettings) -> Mapping[str, str]:
        encoded = base64.b64encode(b"%b:%b" % (settings.user.encode(), secret)).decode()
        return {"Authorization": f"Basic {encoded}"}


def _credentials(header: bytes) -> bytes:
    scheme, _, encoded = header.partition(b" ")
    if scheme.lower() != b"basic":
        raise Rejected("Authorization is missing or not Basic")
    try:
        return base64.b64decode(encoded.strip(), validate=True)
    except binascii.Error:
        raise Rejected("Authorization is not base64") from None

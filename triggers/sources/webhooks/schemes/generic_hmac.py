import base64
import hmac
import re
import secrets as random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from triggers.models import Event
from triggers.sources.http.payload import read_payload
from triggers.sources.kind import Group, register
from triggers.sources.replies import Answer, answer_at, url_setting
from triggers.sources.settings import InvalidSettings, header_name, required_header_name, setting
from triggers.sources.webhooks.naming import Naming, describe_by, sample_by
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, fresh_time, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Description, Sample, Scheme

PLACEHOLDER = re.compile(r"(\{[^{}]*\})")
KNOWN = ("{body}", "{timestamp}", "{id}")


@dataclass(frozen=True, kw_only=True)
class HmacSettings(Naming):
    """Settings of the signature: how the sender computes and sends it."""

    algorithm: str = setting("sha256", "Algorithm", choices=("sha256", "sha512", "sha1"))
    encoding: str = setting("hex", "Encoding", "How the signature is written.", choices=("hex", "base64"))
    header: str = setting(
        "X-Signature", "Signature header", "The header with the signature.", check=required_header_name
    )
    prefix: str = setting("", "Prefix", "Text before the signature in its header, such as sha256=.")
    template: str = setting(
        "{body}",
        "Signed text",
        "The text that is signed, such as {body}, {timestamp}.{body} or {id}.{timestamp}.{body}.",
    )
    timestamp_header: str = setting(
        "",
        "Timestamp header",
        "Header with the Unix time in seconds, the value of {timestamp}. Refused if it is more than five minutes off.",
        check=header_name,
    )

    reply_url: str = url_setting()

    def __post_init__(self) -> None:
        errors = _template_errors(self)
        if errors:
            raise InvalidSettings(errors)


@register
class GenericHmac(Scheme[HmacSettings]):
    """Any sender that signs its body with an HMAC; header, encoding and signed text are settings."""

    name = "hmac"
    label = "HMAC signature"
    help_text = "For senders that sign the body with a shared secret in their own format."
    group = Group.ANY_SENDER
    setup = (
        "At the sender, enter {url} as the address of the webhook.",
        "Enter the secret of this source as its signing secret.",
        "Compare the settings of this source with the page on which the sender describes its signature.",
    )
    settings_class = HmacSettings
    in_sight = ("algorithm", "encoding", "header", "prefix", "template", "timestamp_header")

    def clean_secret(self, secret: str) -> str:
        # Not stripped: a shared secret may contain any characters.
        if not secret.strip():
            raise InvalidSettings({"secret": "must not be empty: enter the secret that the sender signs with"})
        return secret

    def new_secret(self) -> str:
        return random.token_hex(32)

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: HmacSettings) -> Proof:
        signature = _signature(delivery, settings)
        timestamp, signed_at = b"", None
        if settings.timestamp_header:
            timestamp = delivery.headers.get(settings.timestamp_header, b"")
            signed_at = fresh_time(timestamp, delivery.received_at)
        id_ = delivery.headers.get(settings.id_header, b"") if "{id}" in settings.template else b""
        content = _signed_text(delivery.body, id_, timestamp, settings)

        def proves(secret: bytes) -> bool:
            return hmac.compare_digest(_digest(secret, content, settings), signature)

        return Proof(secret=matching_secret(secrets, proves), signed_at=signed_at)

    def answer_to(self, event: Event, settings: HmacSettings) -> Answer:
        return answer_at(event, settings.reply_url)

    def describe(self, delivery: Delivery, proof: Proof, settings: HmacSettings) -> Description:
        return describe_by(settings, delivery, proof, read_payload(delivery.body))

    def sample(self, settings: HmacSettings) -> Sample:
        return sample_by(settings)

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: HmacSettings) -> Mapping[str, str]:
        timestamp = str(int(at.timestamp()))
        id_ = sample.headers.get(settings.id_header, "")
        content = _signed_text(sample.body, id_.encode(), timestamp.encode(), settings)
        signature = {settings.header: settings.prefix + _digest(secret, content, settings).decode()}
        return signature | ({settings.timestamp_header: timestamp} if settings.timestamp_header else {})

    def leaves_id_unsigned(self, settings: HmacSettings) -> bool:
        return "{id}" not in settings.template

    def secret_headers(self, settings: HmacSettings) -> frozenset[str]:
        return frozenset({settings.header})


def _signature(delivery: Delivery, settings: HmacSettings) -> bytes:
    given, prefix = delivery.headers.get(settings.header, b""), settings.prefix.encode()
    if not given:
        raise Rejected(f"{settings.header} is missing")
    if not given.startswith(prefix):
        raise Rejected(f"{settings.header} does not start with {settings.prefix}")
    signature = given.removeprefix(prefix)
    return signature.lower() if settings.encoding == "hex" else signature


def _digest(secret: bytes, content: bytes, settings: HmacSettings) -> bytes:
    digest = hmac.digest(secret, content, settings.algorithm)
    return digest.hex().encode() if settings.encoding == "hex" else base64.b64encode(digest)


def _signed_text(body: bytes, id_: bytes, timestamp: bytes, settings: HmacSettings) -> bytes:
    pieces = _pieces(settings.template)
    values = {"{body}": body, "{timestamp}": timestamp}
    if "{id}" in pieces:
        values["{id}"] = _signed_id(id_, settings, pieces)
    return b"".join(values.get(piece, piece.encode()) for piece in pieces)


def _signed_id(id_: bytes, settings: HmacSettings, pieces: list[str]) -> bytes:
    # An id that contains a separator would make a signed text ambiguous.
    separators = "".join(_separators(pieces))
    if not id_ or set(id_) & set(separators.encode()):
        raise Rejected(f"{settings.id_header} is missing or contains one of {separators!r}")
    return id_


def _pieces(template: str) -> list[str]:
    return [piece for piece in PLACEHOLDER.split(template) if piece]


def _separators(pieces: list[str]) -> list[str]:
    return [piece for piece in pieces[1:-1] if piece not in KNOWN]


def _template_errors(settings: HmacSettings) -> dict[str, str]:
    pieces = _pieces(settings.template)
    used = [piece for piece in pieces if piece in KNOWN]
    stray = [piece for piece in pieces if piece not in KNOWN and ("{" in piece or "}" in piece)]
    if stray:
        return {"template": f"{stray[0]} is unknown; use {', '.join(KNOWN)}"}
    if used.count("{body}") != 1 or len(used) != len(set(used)):
        return {
            "template": "must contain {body} once, and no placeholder twice: a body that is not signed is not authenticated"
        }
    if any(left in KNOWN and right in KNOWN for left, right in pairwise(pieces)):
        return {"template": "needs a separator between placeholders, such as a full stop: {timestamp}.{body}"}
    if any(character.isdigit() for character in "".join(_separators(pieces))):
        return {"template": "must not separate placeholders by digits: they could be read as part of a timestamp"}
    if "{timestamp}" in used and not settings.timestamp_header:
        return {"timestamp_header": "must name the header with the value of {timestamp} in the signed text"}
    if settings.timestamp_header and "{timestamp}" not in used:
        return {
            "template": "must contain {timestamp}, as an unsigned timestamp can be changed; or clear the timestamp header"
        }
    if "{id}" in used and not settings.id_header:
        return {"id_header": "must name the header with the value of {id} in the signed text"}
    return {}

import hashlib
import hmac
import re
import secrets as random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from triggers.sources.http.headers import as_text
from triggers.sources.http.payload import Payload, read_payload
from triggers.sources.webhooks.naming import event_id, is_name, value_at
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Description, Scheme, register
from triggers.sources.webhooks.settings import InvalidSettings

WORD = re.compile(r"[a-z][a-z0-9_]{0,99}")


@dataclass(frozen=True, kw_only=True)
class GitHubSettings:
    """No settings."""


@register
class GitHub(Scheme[GitHubSettings]):
    """GitHub signs the body only, not the headers with the id and the event name."""

    name = "github"
    label = "GitHub"
    help_text = "For webhooks of GitHub repositories, organisations and apps. Events are named as in issues.opened."
    settings_class = GitHubSettings

    def clean_secret(self, secret: str) -> str:
        if not secret.strip():
            raise InvalidSettings({"secret": "must not be empty: enter the secret that is set at GitHub"})
        return secret.strip()

    def new_secret(self) -> str:
        return random.token_hex(32)

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: GitHubSettings) -> Proof:
        given = delivery.headers.get("x-hub-signature-256")
        if not given:
            raise Rejected("x-hub-signature-256 is missing: the webhook has no secret at GitHub")
        if not delivery.headers.get("x-github-delivery"):
            raise Rejected("x-github-delivery is missing")
        if not WORD.fullmatch(_event(delivery)):
            raise Rejected("x-github-event is missing or not an event name")

        def proves(secret: bytes) -> bool:
            expected = f"sha256={hmac.new(secret, delivery.body, hashlib.sha256).hexdigest()}"
            return hmac.compare_digest(expected.encode(), given)

        return Proof(secret=matching_secret(secrets, proves))

    def leaves_id_unsigned(self, settings: GitHubSettings) -> bool:
        return True

    def describe(self, delivery: Delivery, proof: Proof, settings: GitHubSettings) -> Description:
        payload = _payload(delivery)
        action = value_at(payload.data, "action") or ""
        return Description(
            id=event_id(as_text(delivery.headers["x-github-delivery"])),
            type=f"{_event(delivery)}.{action}" if WORD.fullmatch(action) else _event(delivery),
            subject=_subject(payload.data),
            payload=payload,
        )


def _event(delivery: Delivery) -> str:
    return as_text(delivery.headers.get("x-github-event", b""))


def _payload(delivery: Delivery) -> Payload:
    """The JSON body, or the JSON in a form's one field `payload`: GitHub offers both content types."""
    if delivery.headers.media_type() != "application/x-www-form-urlencoded":
        return read_payload(delivery.body)
    try:
        form = parse_qs(delivery.body.decode("ascii"), strict_parsing=True, errors="strict", max_num_fields=10)
        return read_payload(form["payload"][0].encode())
    except (ValueError, KeyError):
        return Payload(error="kept raw: a form without a readable field named payload")


def _subject(data: Any) -> str:
    """The object of the event as GitHub writes it: owner/repository#number."""
    repository = value_at(data, "repository.full_name") or ""
    number = next(
        (number for kind in ("issue", "pull_request", "discussion") if (number := value_at(data, f"{kind}.number"))), ""
    )
    subject = f"{repository}#{number}" if number else repository
    return subject if is_name(subject) else ""

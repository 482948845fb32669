import hashlib
import hmac
import json
import re
import secrets as random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

from runs.notifications.places.github import MARK
from triggers.models import Event
from triggers.sources.http.headers import as_text
from triggers.sources.http.payload import Payload, read_payload
from triggers.sources.kind import Group, register
from triggers.sources.replies import (
    NO,
    Answer,
    Unanswerable,
    answer_by_account,
    api_setting,
    connection_named,
    reply_setting,
    require_on,
    require_reply,
)
from triggers.sources.settings import InvalidSettings, setting
from triggers.sources.webhooks.naming import event_id, is_name, value_at
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Description, Sample, Scheme

REPOSITORY = re.compile(r"(?!\.)[\w.-]{1,100}/(?!\.{1,2}$)[\w.-]{1,100}", re.ASCII)
NUMBER = re.compile(r"[1-9][0-9]{0,9}")
WORD = re.compile(r"[a-z][a-z0-9_]{0,99}")
OPENED = {
    "action": "opened",
    "issue": {
        "number": 1,
        "title": "A test event from Wakeful",
        "body": "Is it possible to see this issue in Wakeful?",
        "html_url": "https://github.com/octocat/hello-world/issues/1",
        "state": "open",
        "labels": [],
        "user": {"login": "octocat"},
    },
    "repository": {"name": "hello-world", "full_name": "octocat/hello-world", "private": False},
    "sender": {"login": "octocat"},
}


@dataclass(frozen=True, kw_only=True)
class GitHubSettings:
    """Whether agents may answer, and by what account."""

    reply: str = reply_setting()
    reply_connection: str = setting(
        "",
        "Connection for replies",
        "The connection to GitHub, which may write comments on issues, that replies are posted by.",
        check=connection_named,
    )
    reply_api: str = api_setting("https://api.github.com/", "API of GitHub")

    def __post_init__(self) -> None:
        require_reply(self.reply, self.reply_connection)


@register
class GitHub(Scheme[GitHubSettings]):
    """GitHub signs the body only, not the headers with the id and the event name."""

    name = "github"
    label = "GitHub"
    help_text = "For webhooks of GitHub repositories, organisations and apps. Events are named as in issues.opened."
    group = Group.CODE
    setup = (
        "In the repository or organisation at GitHub, open Settings → Webhooks → Add webhook.",
        "Enter {url} as Payload URL.",
        "Choose the content type application/json.",
        "Enter the secret of this source as Secret.",
        "Choose the events that agents need, and add the webhook. GitHub then sends an event named ping.",
    )
    docs_url = "https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries"
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
            return hmac.compare_digest(_signature(secret, delivery.body).encode(), given)

        return Proof(secret=matching_secret(secrets, proves))

    def sample(self, settings: GitHubSettings) -> Sample:
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": "issues",
            "X-GitHub-Delivery": str(uuid4()),
            "User-Agent": "GitHub-Hookshot/test",
        }
        return Sample(body=json.dumps(OPENED).encode(), headers=headers)

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: GitHubSettings) -> Mapping[str, str]:
        return {"X-Hub-Signature-256": _signature(secret, sample.body)}

    def leaves_id_unsigned(self, settings: GitHubSettings) -> bool:
        return True

    def connection_of(self, settings: Mapping[str, Any]) -> str:
        return str(settings.get("reply_connection", "")) if settings.get("reply", NO) != NO else ""

    def answer_to(self, event: Event, settings: GitHubSettings) -> Answer:
        """Not at `comments_url`: the body says that, and it could be anywhere."""
        require_on(settings.reply)
        data = event.data
        if value_at(data, "sender.type") == "Bot" or MARK in (value_at(data, "comment.body") or ""):
            raise Unanswerable(
                "a bot, or an agent of this installation, wrote this, and two that answer each other would not end. Leave them out by a "
                f"filter of the trigger: event.data.sender.type != 'Bot' && !event.data.comment.body.contains('{MARK}')"
            )
        repository = value_at(data, "repository.full_name") or ""
        number = value_at(data, "issue.number") or value_at(data, "pull_request.number") or ""
        if not REPOSITORY.fullmatch(repository) or not NUMBER.fullmatch(number):
            raise Unanswerable(
                f"the event {event.type} belongs to no issue and no pull request, so there is none to comment on"
            )
        return answer_by_account(
            settings,
            kind="github-comment",
            name=f"{repository}#{number}",
            thread=f"{repository}:{number}".replace("/", ":"),
            repository=repository,
            number=number,
        )

    def describe(self, delivery: Delivery, proof: Proof, settings: GitHubSettings) -> Description:
        payload = _payload(delivery)
        action = value_at(payload.data, "action") or ""
        return Description(
            id=event_id(as_text(delivery.headers["x-github-delivery"])),
            type=f"{_event(delivery)}.{action}" if WORD.fullmatch(action) else _event(delivery),
            subject=_subject(payload.data),
            payload=payload,
        )


def _signature(secret: bytes, body: bytes) -> str:
    return f"sha256={hmac.new(secret, body, hashlib.sha256).hexdigest()}"


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

"""People who decide by the buttons of Slack and Telegram: what the two send to a source, as they send it."""

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import Permission, User

from runs.actions.chat_accounts import make_code
from runs.models import Approval, ChatAccount, Delivery
from tests.support.hooks import add_secret, post
from triggers.models import Secret, Source

SIGNING = "8f742231b10e8888abcd99yyyzzz85a5"
TELEGRAM_SECRET = "telegrams-secret-token"  # noqa: S105
TS = "1700000000.000200"  # of the message that Slack says it has posted
POSTED = {"ok": True, "channel": "C1", "ts": TS, "message": {"type": "message", "text": "x" * 5_000}}
FORM = "application/x-www-form-urlencoded"


def person(name: str = "ada", *, decides: bool = True, **fields: Any) -> User:
    user = User.objects.create_user(name, is_staff=True, **fields)
    if decides:
        user.user_permissions.add(Permission.objects.get(codename="decide_approval"))
    return user


def linked(source: Source, user: User, account: str = "U1", workspace: str = "T1") -> ChatAccount:
    """Without the way of a code."""
    secret = Secret.objects.filter(source=source).latest("pk")
    return ChatAccount.objects.create(
        source_id=source.pk, secret_id=secret.pk, workspace=workspace, account=account, user=user
    )


def code_of(user: User, source: Source) -> str:
    return make_code(user, source.pk, by=f"admin:{user.username}")


def request() -> Delivery:
    """The delivery that posts the request."""
    return Delivery.objects.get(channel__in=["slack-request", "telegram-request"])


def outcome() -> Delivery:
    return Delivery.objects.get(channel__in=["slack-outcome", "telegram-outcome"])


# Slack


def asking_slack(port: int, **settings: str) -> Source:
    chosen = {"approvals": "yes", "reply_connection": "bot", "reply_api": f"http://127.0.0.1:{port}/api/", **settings}
    source = Source.objects.create(slug="slack", kind="slack", settings=chosen)
    add_secret(source, SIGNING)
    return source


def pressed(delivery: Any, choice: str = "approve", **changed: Any) -> dict[str, Any]:
    """As Slack's interactivity sends it."""
    action = {"type": "button", "block_id": "b1", "action_id": f"wakeful:{choice}:{delivery}", "action_ts": "1.2"}
    return {
        "type": "block_actions",
        "user": {"id": "U1", "username": "ada", "name": "ada", "team_id": "T1"},
        "api_app_id": "A1",
        "token": "old-verification-token",
        "container": {"type": "message", "message_ts": TS, "channel_id": "C1", "is_ephemeral": False},
        "trigger_id": "13345224609.738474920.8088930838d88f008e0",
        "team": {"id": "T1", "domain": "example"},
        "channel": {"id": "C1", "name": "orders"},
        "message": {"bot_id": "B1", "type": "message", "ts": TS, "thread_ts": "1700000000.000100"},
        "response_url": "https://hooks.slack.com/actions/T1/1/x",
        "actions": [{**action, **changed.pop("action", {})}],
        **changed,
    }


def in_slack(payload: Mapping[str, Any], *, secret: str = SIGNING, at: float | None = None) -> Any:
    return to_slack({"payload": json.dumps(payload)}, secret=secret, at=at)


def commanded(text: str, **changed: str) -> Any:
    command = {
        "team_id": "T1",
        "user_id": "U1",
        "user_name": "ada",
        "command": "/wakeful",
        "text": text,
        "channel_id": "C1",
    }
    return to_slack({**command, "trigger_id": "1.2", **changed})


def to_slack(form: Mapping[str, str], *, secret: str = SIGNING, at: float | None = None) -> Any:
    body = urlencode(form).encode()
    return post(body, {"Content-Type": FORM, **signature(body, secret, at)}, slug="slack")


def signature(body: bytes, secret: str = SIGNING, at: float | None = None) -> dict[str, str]:
    stamp = str(int(at or time.time()))
    digest = hmac.new(secret.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={digest}"}


# Telegram


def asking_telegram(**settings: str) -> Source:
    chosen = {"approvals": "yes", "reply_recipient": "bot", **settings}
    source = Source.objects.create(slug="telegram", kind="telegram", settings=chosen)
    add_secret(source, TELEGRAM_SECRET)
    return source


def tapped(delivery: Delivery, choice: str = "approve", **changed: Any) -> dict[str, Any]:
    """As Telegram sends it."""
    message = {"message_id": 8, "chat": {"id": -100123, "type": "supergroup"}, "date": 1_700_000_000, "text": "…"}
    return {
        "update_id": 10_000,
        "callback_query": {
            "id": "4382bfdwdsb323b2d9",
            "from": {"id": 11, "is_bot": False, "first_name": "Ada", "username": "ada"},
            "message": message,
            "chat_instance": "1",
            "data": f"wakeful:{choice}:{delivery.pk.hex}",
            **changed,
        },
    }


def in_telegram(update: Mapping[str, Any], *, token: str = TELEGRAM_SECRET) -> Any:
    headers = {"Content-Type": "application/json", "X-Telegram-Bot-Api-Secret-Token": token}
    return post(json.dumps(update).encode(), headers, slug="telegram")


def written(text: str, **chat: Any) -> dict[str, Any]:
    sender = {"id": 11, "is_bot": False, "first_name": "Ada", "username": "ada"}
    message = {"message_id": 5, "from": sender, "chat": {"id": 11, "type": "private", **chat}, "date": 1_700_000_000}
    return {"update_id": 10_001, "message": {**message, "text": text}}


def decisions() -> list[str]:
    return list(Approval.objects.order_by("wait_id").values_list("decision", flat=True))

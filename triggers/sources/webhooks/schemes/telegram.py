import hmac
import json
import re
import secrets as random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from runs.actions.chat_accounts import CODE
from runs.notifications.requests import PRESSED
from triggers.models import Event
from triggers.sources.http.payload import read_payload
from triggers.sources.kind import Group, register
from triggers.sources.replies import (
    NO,
    YES,
    Answer,
    Unanswerable,
    approvals_setting,
    reply_setting,
    require_approvals,
    require_on,
)
from triggers.sources.settings import InvalidSettings, setting
from triggers.sources.webhooks.naming import (
    UNNAMED_TYPE,
    body_id,
    event_id,
    event_type,
    found_at,
    subject_at,
    time_at,
    value_at,
)
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, matching_secret
from triggers.sources.webhooks.scheme import Act, Delivery, Description, Press, Reply, Sample, SentCode
from triggers.sources.webhooks.schemes.shared_secret import SharedSecret

HEADER = "x-telegram-bot-api-secret-token"
TOKEN = re.compile(r"[A-Za-z0-9_-]{1,256}")
CHAT = re.compile(r"-?[0-9]{1,20}")
NUMBER = re.compile(r"[0-9]{1,20}")
BUTTON = re.compile(rf"{PRESSED}:([a-z]{{1,20}}):([0-9a-f]{{32}})")
LONGEST_ALERT = 200  # characters, as Telegram has it
MESSAGES = ("message", "edited_message", "channel_post", "edited_channel_post", "callback_query.message")


@dataclass(frozen=True, kw_only=True)
class TelegramSettings:
    """Whether agents may answer, and by what bot."""

    reply: str = reply_setting()
    reply_recipient: str = setting(
        "",
        "Bot for replies",
        "The recipient of notifications whose address has the token of this bot: tgram://<token>/<chat>. Its chat does not count: answers "
        "go to the chat of the message.",
    )

    approvals: str = approvals_setting()

    def __post_init__(self) -> None:
        if (self.reply != NO or self.approvals != NO) and not self.reply_recipient:
            raise InvalidSettings({"reply_recipient": "name the recipient whose address has the token of the bot"})


@register
class Telegram(SharedSecret[TelegramSettings]):
    """Telegram sends a token that was given to setWebhook; it signs nothing."""

    name = "telegram"
    label = "Telegram"
    help_text = "For bots of Telegram. Events are named by what has come: message, edited_message, callback_query."
    group = Group.MESSAGES
    setup = (
        "Write to @BotFather at Telegram: /newbot makes a bot, and gives its token.",
        "Have Telegram send to {url}, with the secret of this source as secret_token: curl https://api.telegram.org/bot<token>/setWebhook "
        "-d url={url} -d secret_token=<secret>.",
        "In groups, a bot gets commands and answers to its messages alone, unless @BotFather's /setprivacy is off.",
        "To answer, and for approvals: add a recipient of notifications with the address tgram://<token>/<chat>, and enter its name as Bot "
        "for replies.",
    )
    docs_url = "https://core.telegram.org/bots/api#setwebhook"
    secret_label = "Secret token"
    settings_class = TelegramSettings
    accepted = Reply()

    def clean_secret(self, secret: str) -> str:
        token = super().clean_secret(secret)
        if not TOKEN.fullmatch(token):
            raise InvalidSettings({"secret": "must be letters, digits, _ and -, 256 at most: Telegram takes no other"})
        return token

    def new_secret(self) -> str:
        return random.token_urlsafe(32)

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: TelegramSettings) -> Proof:
        given = delivery.headers.get(HEADER)
        if not given:
            raise Rejected(f"{HEADER} is missing: give setWebhook the secret_token")
        return Proof(secret=matching_secret(secrets, lambda secret: hmac.compare_digest(secret, given)))

    def describe(self, delivery: Delivery, proof: Proof, settings: TelegramSettings) -> Description:
        payload = read_payload(delivery.body)
        id = value_at(payload.data, "update_id")
        return Description(
            id=event_id(id) if id else body_id(delivery),
            type=event_type(_kind(payload.data)) or UNNAMED_TYPE,
            subject=subject_at(payload.data, *(f"{path}.chat.id" for path in MESSAGES)),
            time=next((at for path in MESSAGES[:4] if (at := time_at(payload.data, f"{path}.date"))), None),
            payload=payload,
        )

    def answer_to(self, event: Event, settings: TelegramSettings) -> Answer:
        """In the chat, and its topic if it has some, as an answer to the message."""
        require_on(settings.reply)
        return self._chat(event, settings, "telegram-chat")

    def asks_at(self, event: Event, settings: TelegramSettings) -> Answer:
        require_approvals(settings.approvals)
        return self._chat(event, settings, "telegram-request")

    def asks(self, settings: TelegramSettings) -> bool:
        return settings.approvals == YES

    def act(self, delivery: Delivery, settings: TelegramSettings) -> Act | None:
        data = read_payload(delivery.body).data
        named = BUTTON.fullmatch(value_at(data, "callback_query.data") or "")
        if not named:
            return _sent_code(data)
        chat, number = (value_at(data, f"callback_query.message.{path}") or "" for path in ("chat.id", "message_id"))
        fits = CHAT.fullmatch(chat) and NUMBER.fullmatch(number)
        return Press(
            workspace="",
            account=value_at(data, "callback_query.from.id") or "",
            request=UUID(named[2]),
            message={"chat": int(chat), "message": int(number)} if fits else {},
            choice=named[1],
            answered={"callback_query_id": value_at(data, "callback_query.id") or ""},
        )

    def answer_act(self, act: Act, words: str, *, is_refusal: bool, settings: TelegramSettings) -> Reply:
        """In the answer to the update, which Telegram takes for a call of its API."""
        if isinstance(act, Press):
            shown = {"text": words[:LONGEST_ALERT], "show_alert": is_refusal}
            call = {"method": "answerCallbackQuery", **act.answered, **shown}
        else:
            call = {"method": "sendMessage", **act.answered, "text": words}
        return Reply(body=json.dumps(call).encode(), content_type="application/json")

    def _chat(self, event: Event, settings: TelegramSettings, kind: str) -> Answer:
        data = event.data
        path = next((one for one in MESSAGES if value_at(data, f"{one}.chat.id")), "")
        sender = "callback_query" if path.startswith("callback_query") else path
        if not path or found_at(data, f"{sender}.from.is_bot"):
            raise Unanswerable(
                f"the event {event.type} is no message of a person in a chat. Leave out bots by a filter of the trigger: "
                "!event.data.message.from.is_bot"
            )
        chat, number = value_at(data, f"{path}.chat.id") or "", value_at(data, f"{path}.message_id") or ""
        # In groups without topics, it is the number of the message that an answer belongs to.
        is_topic = found_at(data, f"{path}.is_topic_message") is True
        topic = (value_at(data, f"{path}.message_thread_id") or "") if is_topic else ""
        if not CHAT.fullmatch(chat) or not NUMBER.fullmatch(number) or not NUMBER.fullmatch(topic or "0"):
            raise Unanswerable(f"the event {event.type} names no chat and message of Telegram")
        return Answer(
            kind=kind,
            to={
                "host": "api.telegram.org",
                "recipient": settings.reply_recipient,
                "chat": int(chat),
                "message": int(number),
                "topic": int(topic) if topic else None,
            },
            name=f"Telegram chat {chat}",
            thread=":".join(filter(None, (chat, topic))),
            asks=settings.reply != YES,
        )

    def sample(self, settings: TelegramSettings) -> Sample:
        person = {"id": 1, "is_bot": False, "first_name": "Test"}
        message = {
            "message_id": 1,
            "from": person,
            "chat": {"id": 1, "type": "private", "first_name": "Test"},
            "date": 1_767_225_600,
            "text": "A test event from Wakeful",
        }
        body = {"update_id": random.randbelow(2**31), "message": message}
        return Sample(body=json.dumps(body).encode(), headers={"Content-Type": "application/json"})

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: TelegramSettings) -> Mapping[str, str]:
        return {"X-Telegram-Bot-Api-Secret-Token": secret.decode()}


def _sent_code(data: Any) -> SentCode | None:
    """A code in a message; only the chat of the bot with the sender is private."""
    path = next((one for one in MESSAGES[:4] if value_at(data, f"{one}.chat.id")), "")
    texts = [value_at(data, f"{path}.{end}") or "" for end in ("text", "caption")] if path else []
    found = next((code for text in texts if (code := CODE.search(text))), None)
    if not found:
        return None
    chat, sender = (value_at(data, f"{path}.{end}") or "" for end in ("chat.id", "from.id"))
    return SentCode(
        code=found[0],
        workspace="",
        account=sender,
        name=value_at(data, f"{path}.from.username") or "",
        is_private=path == "message" and value_at(data, "message.chat.type") == "private" and chat == sender != "",
        answered={"chat_id": chat},
    )


def _kind(data: Any) -> str:
    """What the update has besides its number: Telegram sends one of them."""
    return next((name for name in data if name != "update_id"), "") if isinstance(data, dict) else ""

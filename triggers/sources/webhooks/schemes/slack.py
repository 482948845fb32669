import hmac
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from runs.actions.chat_accounts import CODE
from runs.actions.pressed_buttons import whisper
from runs.notifications.channels.slack import escaped
from runs.notifications.requests import PRESSED
from triggers.models import Event
from triggers.sources.http.payload import FORM, Payload, read_form, read_payload
from triggers.sources.kind import Group, register
from triggers.sources.replies import (
    NO,
    YES,
    Answer,
    Unanswerable,
    answer_by_account,
    api_setting,
    approvals_setting,
    connection_named,
    host_of,
    reply_setting,
    require_approvals,
    require_on,
    require_reply,
)
from triggers.sources.settings import setting
from triggers.sources.webhooks.naming import UNNAMED_TYPE, body_id, event_id, event_type, subject_at, time_at, value_at
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, fresh_time, matching_secret
from triggers.sources.webhooks.scheme import Act, Delivery, Description, Press, Reply, Sample, SentCode
from triggers.sources.webhooks.schemes.shared_secret import SharedSecret

CHANNEL = re.compile(r"[A-Z0-9]{1,50}")
# Of the bot that wrote a message, that changed it, or whose message was changed or deleted.
AUTHORS = (
    "event.bot_id", "event.bot_profile.id", "event.message.bot_id", "event.previous_message.bot_id", "message.bot_id",
)  # fmt: skip
BUTTON = re.compile(rf"{PRESSED}:([a-z]{{1,20}}):([0-9a-f-]{{1,40}})")
WRITTEN = ("event.text", "event.message.text", "event.previous_message.text")  # what people wrote, or changed
LONGEST_ANSWER = 2_000  # characters
TIMESTAMP = re.compile(r"[0-9]{1,20}\.[0-9]{1,10}")


@dataclass(frozen=True, kw_only=True)
class SlackSettings:
    """Whether agents may answer, and by what account; Slack defines everything else."""

    reply: str = reply_setting()
    reply_connection: str = setting(
        "",
        "Connection for replies",
        "The connection to Slack, with the scope chat:write, that replies are posted by.",
        check=connection_named,
    )
    reply_api: str = api_setting("https://slack.com/api/", "API of Slack")
    approvals: str = approvals_setting()

    def __post_init__(self) -> None:
        require_reply(YES if self.approvals == YES else self.reply, self.reply_connection)


@register
class Slack(SharedSecret[SlackSettings]):
    """Slack signs time and body, of its Events API, of slash commands, and of buttons, dialogs and shortcuts."""

    name = "slack"
    label = "Slack"
    help_text = (
        "For Slack apps: the Events API (app_mention, message, message.bot_message), slash commands (slash_command), and "
        "interactivity (block_actions, view_submission, shortcut)."
    )
    group = Group.MESSAGES
    setup = (
        "At api.slack.com/apps, open your app, or create one.",
        "Copy the signing secret from Basic Information → App Credentials, and enter it here first.",
        "For events: open Event Subscriptions, switch it on, enter {url} as Request URL, which Slack checks at once, subscribe to "
        "the bot events that agents need, and save.",
        "For slash commands: open Slash Commands, and enter {url} as Request URL of each command.",
        "For buttons, dialogs and shortcuts: open Interactivity & Shortcuts, and enter {url} as Request URL.",
        "For approvals: also open Slash Commands, and create one with {url} as Request URL, by which people link their accounts.",
        "Install the app to the workspace, and invite it to the channels whose messages it should receive.",
    )
    docs_url = "https://docs.slack.dev/authentication/verifying-requests-from-slack"
    is_secret_given = True
    settings_class = SlackSettings
    accepted = Reply()  # a person who uses a slash command would be shown another answer

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: SlackSettings) -> Proof:
        given = delivery.headers.get("x-slack-signature", b"")
        timestamp = delivery.headers.get("x-slack-request-timestamp", b"")
        if not given:
            raise Rejected("x-slack-signature is missing")
        signed_at = fresh_time(timestamp, delivery.received_at)

        def proves(secret: bytes) -> bool:
            return hmac.compare_digest(_signature(secret, timestamp, delivery.body), given)

        return Proof(secret=matching_secret(secrets, proves), signed_at=signed_at)

    def greet(self, delivery: Delivery, proof: Proof, settings: SlackSettings) -> Reply | None:
        """The answer to the check of an address: of the Events API, with a challenge, and of slash commands, without."""
        data = _payload(delivery).data
        if value_at(data, "type") == "url_verification":
            challenge = value_at(data, "challenge") or ""
            return Reply(body=challenge.encode())
        return Reply() if value_at(data, "ssl_check") == "1" else None

    def describe(self, delivery: Delivery, proof: Proof, settings: SlackSettings) -> Description:
        payload = _payload(delivery)
        id_ = value_at(payload.data, "event_id") or value_at(payload.data, "trigger_id")
        return Description(
            id=event_id(id_) if id_ else body_id(delivery),
            type=_type(payload.data),
            subject=subject_at(
                payload.data, "event.channel", "event.channel.id", "event.item.channel", "command", "channel.id",
                "view.callback_id", "callback_id", "event.user", "event.user.id",
            ),
            time=time_at(payload.data, "event_time") or proof.signed_at,
            payload=payload,
        )  # fmt: skip

    def connection_of(self, settings: Mapping[str, Any]) -> str:
        is_used = any(settings.get(name, NO) != NO for name in ("reply", "approvals"))
        return str(settings.get("reply_connection", "")) if is_used else ""

    def answer_to(self, event: Event, settings: SlackSettings) -> Answer:
        require_on(settings.reply)
        return self._thread(event, settings, "slack-thread")

    def asks_at(self, event: Event, settings: SlackSettings) -> Answer:
        require_approvals(settings.approvals)
        return self._thread(event, settings, "slack-request")

    def asks(self, settings: SlackSettings) -> bool:
        return settings.approvals == YES

    def act(self, delivery: Delivery, settings: SlackSettings) -> Act | None:
        data = _payload(delivery).data
        if value_at(data, "command"):
            return _sent_code(data, "text", "team_id", "user_id", is_private=True)
        if value_at(data, "event.type"):
            text = next((one for one in WRITTEN if CODE.search(value_at(data, one) or "")), "event.text")
            return _sent_code(data, text, "team_id", "event.user", is_private=False)
        named = BUTTON.fullmatch(value_at(data, "actions.0.action_id") or "")
        if not named or value_at(data, "type") != "block_actions":
            return None
        channel = _first(data, "container.channel_id", "channel.id")
        return Press(
            workspace=_first(data, "user.team_id", "team.id"),
            account=_first(data, "user.id"),
            request=_uuid(named[2]),
            message={"channel": channel, "ts": _first(data, "container.message_ts", "message.ts")},
            choice=named[1],
            text=(value_at(data, "actions.0.value") or "")[:LONGEST_ANSWER] if named[1] == "answer" else "",
            answered={"channel": channel, "thread_ts": _first(data, "message.thread_ts", "container.thread_ts")},
        )

    def answer_act(self, act: Act, words: str, *, is_refusal: bool, settings: SlackSettings) -> Reply:
        """To a slash command, in the answer; to a button, in a message of its own. The message of a decision is changed anyway."""
        if isinstance(act, SentCode):
            if not act.is_private:
                return self.accepted
            said = {"response_type": "ephemeral", "text": escaped(words)}
            return Reply(body=json.dumps(said).encode(), content_type="application/json")
        channel, thread = act.answered["channel"], act.answered["thread_ts"]
        fits = CHANNEL.fullmatch(channel) and CHANNEL.fullmatch(act.account) and TIMESTAMP.fullmatch(thread or "0.0")
        if is_refusal and fits and settings.reply_connection:
            account = {
                "host": host_of(settings.reply_api),
                "api": settings.reply_api,
                "connection": settings.reply_connection,
            }
            whisper({**account, "channel": channel, "thread_ts": thread, "user": act.account}, words)
        return self.accepted

    def _thread(self, event: Event, settings: SlackSettings, kind: str) -> Answer:
        data = event.data
        if _first(data, *AUTHORS) and not value_at(data, "actions.0.type"):
            raise Unanswerable(
                "a bot wrote this message, and two bots that answer each other would not end. Leave them out by a filter of the "
                "trigger: !has(event.data.event.bot_id)"
            )
        if _first(data, "event.message.ts") and _first(data, "event.subtype") in ("", "message_replied"):
            raise Unanswerable("it says that a thread has got a reply, which is an event of its own")
        channel = _first(
            data, "event.channel", "event.item.channel", "channel_id", "channel.id", "container.channel_id"
        )
        thread = _first(
            data, "event.thread_ts", "event.message.thread_ts", "event.message.ts", "event.previous_message.thread_ts",
            "event.previous_message.ts", "event.ts", "event.item.ts", "message.thread_ts", "message.ts", "container.message_ts",
        )  # fmt: skip
        if not CHANNEL.fullmatch(channel) or not (not thread or TIMESTAMP.fullmatch(thread)):
            raise Unanswerable(
                f"the event {event.type} belongs to no channel of Slack, so there is no thread to answer in"
            )
        return answer_by_account(
            settings,
            kind=kind,
            name=f"Slack thread in {channel}" if thread else f"Slack channel {channel}",
            thread=":".join(filter(None, (channel, thread))),
            channel=channel,
            thread_ts=thread,
        )

    def sample(self, settings: SlackSettings) -> Sample:
        event = {
            "type": "app_mention",
            "user": "U0TEST",
            "channel": "C0TEST",
            "text": "<@U0BOT> A test event from Wakeful",
        }
        body = {"type": "event_callback", "team_id": "T0TEST", "event_id": f"Ev{uuid4().hex.upper()}", "event": event}
        return Sample(body=json.dumps(body).encode(), headers={"Content-Type": "application/json"})

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: SlackSettings) -> Mapping[str, str]:
        timestamp = str(int(at.timestamp()))
        signature = _signature(secret, timestamp.encode(), sample.body)
        return {"X-Slack-Request-Timestamp": timestamp, "X-Slack-Signature": signature.decode()}


def _signature(secret: bytes, timestamp: bytes, body: bytes) -> bytes:
    return b"v0=" + hmac.digest(secret, b"v0:%b:%b" % (timestamp, body), "sha256").hex().encode()


def _sent_code(data: Any, text: str, workspace: str, account: str, *, is_private: bool) -> SentCode | None:
    found = CODE.search(value_at(data, text) or "")
    if not found:
        return None
    return SentCode(
        code=found[0],
        workspace=_first(data, workspace),
        account=_first(data, account),
        name=_first(data, "user_name"),
        is_private=is_private,
    )


def _uuid(text: str) -> UUID | None:
    with suppress(ValueError):
        return UUID(text)
    return None


def _first(data: Any, *paths: str) -> str:
    return next((found for path in paths if (found := value_at(data, path))), "")


def _payload(delivery: Delivery) -> Payload:
    """JSON of the Events API; the fields of a slash command; the JSON in the field `payload` of an interaction."""
    if delivery.headers.media_type() != FORM:
        return read_payload(delivery.body)
    form = read_form(delivery.body)
    interaction = value_at(form.data, "payload")
    return read_payload(interaction.encode()) if interaction else form


def _type(data: Any) -> str:
    """The type of the inner event with its subtype, or of the interaction; slash_command for slash commands."""
    if value_at(data, "command"):
        return "slash_command"
    names = [name for path in ("event.type", "event.subtype") if (name := value_at(data, path))]
    return event_type(".".join(names) or value_at(data, "type")) or UNNAMED_TYPE

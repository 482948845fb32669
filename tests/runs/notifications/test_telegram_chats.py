"""A run answers a message of Telegram, by the bot of a recipient."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from runs.models import Recipient
from runs.notifications.channels.channel import NotNow, Outcome, Refused, Sent, Unknown
from runs.notifications.message import Item, Message
from runs.notifications.places.place import places
from runs.notifications.places.telegram import PLACE
from tests.support.chat_servers import BOT, taking_telegram
from tests.support.post_office import HookServer
from triggers.models import Event
from triggers.sources.kind import kinds

pytestmark = pytest.mark.django_db

TO = {"host": "api.telegram.org", "recipient": "bot", "chat": -100123, "message": 7, "topic": 42}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HookServer]:
    with taking_telegram(monkeypatch) as server:
        yield server


def bot(address: str = f"tgram://{BOT}/1", **fields: Any) -> None:
    Recipient.objects.create(name="bot", address=address, channel="apprise", host="telegram", **fields)


def sent(text: str = "Four.", **to: Any) -> Outcome:
    at = datetime(2026, 11, 20, 9, tzinfo=UTC)
    item = Item(id=1, text=text, sender="clerk", urgency="normal", topic="", link="", at=at)
    return PLACE.send({**TO, **to}, Message(id=UUID(int=7), to="", items=[item]))


def test_the_answer_goes_to_the_chat_of_the_message(server: HookServer) -> None:
    bot()

    assert sent() == Sent()
    [posted] = server.posted
    assert posted.path == f"/bot{BOT}/sendMessage"
    assert json.loads(posted.body) == {
        "chat_id": -100123,
        "text": "Four.",
        "message_thread_id": 42,
        "reply_parameters": {"message_id": 7, "allow_sending_without_reply": True},
        "link_preview_options": {"is_disabled": True},
    }


def test_a_long_text_is_cut_where_telegram_counts(server: HookServer) -> None:
    bot()
    sent("😀" * 4_000, topic=None)

    body = json.loads(server.posted[0].body)
    assert "message_thread_id" not in body
    assert len(body["text"].encode("utf-16-le")) // 2 <= 4096
    assert body["text"].endswith("… (shortened; the console shows all of it)")


@pytest.mark.parametrize(
    ("manner", "outcome"), [("refuse", Refused), ("greylist", NotNow), ("later", NotNow), ("cut", Unknown)]
)
def test_what_became_of_it_is_known_or_unknown(server: HookServer, manner: Any, outcome: type) -> None:
    bot()
    server.manner = manner
    server.says = b'{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":35}}'

    found = sent()

    assert isinstance(found, outcome) and BOT not in str(found)
    if manner == "greylist":
        assert isinstance(found, NotNow) and found.after and found.after.total_seconds() == 35


@pytest.mark.parametrize("fields", [{"address": "ntfy://host/topic"}, {"active": False}])
def test_without_a_bot_nothing_is_sent(server: HookServer, fields: dict[str, Any]) -> None:
    assert isinstance(sent(), Refused)
    bot(**fields)
    assert isinstance(sent(), Refused)
    assert server.posted == []


def test_what_an_event_leads_to_is_what_the_place_sends_by(server: HookServer) -> None:
    bot()
    message = {"message_id": 7, "from": {"is_bot": False}, "chat": {"id": 5}, "text": "How many?"}
    kind = kinds()["telegram"]
    chosen = kind.clean_settings({"reply": "yes", "reply_recipient": "bot"})

    found = kind.answer_to(Event(type="message", data={"update_id": 1, "message": message}), chosen)

    assert places()[found.kind] is PLACE
    assert sent(**json.loads(json.dumps(found.to))) == Sent()
    assert json.loads(server.posted[0].body)["chat_id"] == 5

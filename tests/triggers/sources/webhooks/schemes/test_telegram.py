"""Updates of a bot, in the shapes of Telegram's reference."""

import json
from typing import Any

import pytest

from tests.support.deliveries import take
from triggers.models import Event
from triggers.sources.kind import kinds
from triggers.sources.replies import Answer, Unanswerable
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.proof import Rejected

SECRET = "a_secret-of-the-webhook"  # noqa: S105
HEADERS = {"X-Telegram-Bot-Api-Secret-Token": SECRET, "Content-Type": "application/json"}
ADA = {"id": 1111111, "is_bot": False, "first_name": "Ada", "username": "ada"}
GROUP = {"id": -1001234567890, "type": "supergroup", "title": "Orders", "is_forum": True}
MESSAGE = {
    "message_id": 1365,
    "from": ADA,
    "chat": {"id": 1111111, "type": "private"},
    "date": 1441645532,
    "text": "Hi",
}
UPDATE = {"update_id": 10000, "message": MESSAGE}
REPLY = {"reply": "yes", "reply_recipient": "bot"}


def taken(update: Any, **headers: str) -> Any:
    return take("telegram", json.dumps(update).encode(), HEADERS | headers, SECRET).event


def answer(update: dict[str, Any], **settings: str) -> Answer:
    kind = kinds()["telegram"]
    return kind.answer_to(Event(type="message", data=update), kind.clean_settings({**REPLY, **settings}))


def test_a_message_is_named_by_its_update_and_its_chat() -> None:
    event = taken(UPDATE)

    assert (event.ce_id, event.type, event.subject) == ("10000", "message", "1111111")
    assert event.time.timestamp() == 1441645532
    assert event.headers["x-telegram-bot-api-secret-token"] == "[redacted]"


def test_a_button_is_named_too() -> None:
    event = taken({"update_id": 10001, "callback_query": {"id": "4382", "from": ADA, "message": MESSAGE, "data": "x"}})

    assert (event.ce_id, event.type, event.subject) == ("10001", "callback_query", "1111111")


@pytest.mark.parametrize("given", ["", "another", SECRET[:-1], "ä"])
def test_another_token_is_refused(given: str) -> None:
    with pytest.raises(Rejected):
        taken(UPDATE, **{"X-Telegram-Bot-Api-Secret-Token": given})


@pytest.mark.parametrize("secret", ["with space", "ü" * 8, "a" * 257, "a:b"])
def test_a_secret_that_telegram_does_not_take_is_refused(secret: str) -> None:
    with pytest.raises(InvalidSettings):
        kinds()["telegram"].clean_secret(secret)


def test_a_message_is_answered_in_its_chat() -> None:
    found = answer(UPDATE)

    assert found.to == {
        "host": "api.telegram.org", "recipient": "bot", "chat": 1111111, "message": 1365, "topic": None
    }  # fmt: skip
    assert (found.thread, found.asks) == ("1111111", False)


def test_one_of_a_topic_is_answered_there() -> None:
    message = {**MESSAGE, "chat": GROUP, "is_topic_message": True, "message_thread_id": 42}

    found = answer({"update_id": 1, "message": message}, reply="ask")

    assert (found.to["chat"], found.to["topic"], found.thread) == (-1001234567890, 42, "-1001234567890:42")
    assert found.asks


def test_in_a_group_without_topics_the_chat_is_the_thread() -> None:
    message = {**MESSAGE, "chat": {**GROUP, "is_forum": False}, "message_thread_id": 1300}

    assert answer({"update_id": 1, "message": message}).to["topic"] is None


@pytest.mark.parametrize(
    "update",
    [
        {"update_id": 1, "message": {**MESSAGE, "from": {**ADA, "is_bot": True}}},
        {"update_id": 1, "message": {**MESSAGE, "chat": {"id": "1/../x"}}},
        {"update_id": 1, "message": {**MESSAGE, "message_id": "a"}},
        {"update_id": 1, "poll": {"id": "1"}},
        {"update_id": 1},
    ],
)
def test_what_a_bot_wrote_or_what_is_in_no_chat_is_not_answered(update: dict[str, Any]) -> None:
    with pytest.raises(Unanswerable):
        answer(update)


def test_replies_are_off_and_need_a_bot() -> None:
    with pytest.raises(Unanswerable, match="“Reply” is “no”"):
        answer(UPDATE, reply="no")
    with pytest.raises(InvalidSettings, match="reply_recipient"):
        kinds()["telegram"].clean_settings({"reply": "ask"})

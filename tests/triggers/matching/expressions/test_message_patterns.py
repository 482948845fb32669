"""Patterns of messages as filters in CEL: what they match, and that a person can read them."""

from dataclasses import replace
from typing import Any

import pytest

from triggers.matching.expressions.cel import Question, answer, compile_expression, context_of
from triggers.matching.expressions.message_patterns import (
    CHAT,
    MAIL,
    SLACK,
    InvalidPattern,
    Pattern,
    Shape,
    Where,
    expression,
    literal,
)


def slack(text: str = "hello", **event: Any) -> dict[str, Any]:
    return {"event": {"type": "message", "text": text, "user": "U1", "channel": "C1", "ts": "1.0", **event}}


def letter(text: str = "hello", subject: str = "", sender: str = "anna@example.com", **data: Any) -> dict[str, Any]:
    parts = {
        "from": {"name": "", "address": sender},
        "to": [],
        "cc": [],
        "list_id": "",
        "thread_id": "<1@x>",
        "is_automatic": False,
    }
    return {"text": text, "subject": subject, **parts, **data}


def matches(shape: Shape, pattern: Pattern, data: Any) -> bool:
    found = answer(Question(filter=expression(shape, pattern)), lambda: context_of({"type": "t", "data": data}))
    assert not found.error
    return found.passes


@pytest.mark.parametrize(
    ("pattern", "wanted", "others"),
    [
        (
            Pattern(keywords=["invoice", "pay now", "c++"]),
            ["An Invoice!", "please PAY\n now", "learn C++, today"],
            ["invoices", "prepay now", "nothing"],
        ),
        (Pattern(hashtags=["urgent", "#todo"]), ["do it #Urgent", "#todo, soon"], ["urgent", "#urgently", "a#todo"]),
        (Pattern(mentions=["U7", "U8"]), ["ask <@U7>", "<@U8|anna> hi"], ["ask U7", "<@U9>"]),
        (Pattern(regex=r'PR-\d{3,} "x"'), ['see PR-1234 "x"'], ["PR-12"]),
        (Pattern(keywords=["ü"], regex="^a"), ["aber ü"], ["ü", "a", "aber üb"]),
        (Pattern(keywords=["zahl jetzt"]), ["bitte ZAHL\u00a0jetzt!"], ["äzahl jetzt", "zahl jetztö"]),
    ],
)
def test_a_pattern_matches_texts_of_slack(pattern: Pattern, wanted: list[str], others: list[str]) -> None:
    assert [text for text in wanted if not matches(SLACK, pattern, slack(text))] == []
    assert [text for text in others if matches(SLACK, pattern, slack(text))] == []


@pytest.mark.parametrize(
    ("pattern", "wanted", "other"),
    [
        (Pattern(channels=["C1"]), slack(), slack(channel="C2")),
        (Pattern(channels=["C1", "C2"]), slack(channel="C2"), slack(channel="C3")),
        (Pattern(senders=["U1"]), slack(), slack(user="U2")),
        (Pattern(threads=["1.5"]), slack(thread_ts="1.5"), slack()),
        (Pattern(where=Where.IN_THREAD), slack(thread_ts="1.5"), slack()),
        (Pattern(where=Where.NOT_IN_THREAD), slack(), slack(thread_ts="1.5")),
        (Pattern(by_people=True), slack(), slack(bot_id="B1")),
        (Pattern(keywords=["hello"], channels=["C1"]), slack(), slack(channel="C2")),
        (Pattern(keywords=["hello"]), slack(), {"event": {"type": "message", "subtype": "message_changed"}}),
        (Pattern(keywords=["hello"]), slack(), {"command": "/deploy", "text": "hello"}),
        (Pattern(keywords=["hello"]), slack(), {}),
    ],
)
def test_a_pattern_matches_senders_and_channels_of_slack(
    pattern: Pattern, wanted: dict[str, Any], other: dict[str, Any]
) -> None:
    assert matches(SLACK, pattern, wanted)
    assert not matches(SLACK, pattern, other)


@pytest.mark.parametrize(
    ("pattern", "wanted", "other"),
    [
        (Pattern(keywords=["invoice"]), letter(subject="Your invoice"), letter(subject="Your bill")),
        (Pattern(senders=["*@example.com"]), letter(), letter(sender="x@notexample.com")),
        (Pattern(senders=["bob@x.org", "*@example.com"]), letter(), letter(sender="a@x.org")),
        (Pattern(mentions=["help@x.org"]), letter(cc=[{"address": "help@x.org"}]), letter(to=[{"address": "a@x.org"}])),
        (Pattern(channels=["<l.x.org>"]), letter(list_id="<l.x.org>"), letter()),
        (Pattern(by_people=True), letter(), letter(is_automatic=True)),
    ],
)
def test_a_pattern_matches_the_parts_of_mail(pattern: Pattern, wanted: dict[str, Any], other: dict[str, Any]) -> None:
    assert matches(MAIL, pattern, wanted)
    assert not matches(MAIL, pattern, other)


def test_a_pattern_matches_another_chat_by_its_own_field_paths() -> None:
    shape = replace(CHAT, texts=("message.body",), sender="message.by", channel="room")
    pattern = Pattern(mentions=["@bot"], senders=["anna"], channels=["ops"])

    assert matches(shape, pattern, {"message": {"body": "Hey @Bot!", "by": "anna"}, "room": "ops"})
    assert not matches(shape, pattern, {"message": {"body": "mail@bot.example", "by": "anna"}, "room": "ops"})


def test_a_person_can_read_the_expression() -> None:
    pattern = Pattern(keywords=["invoice", "refund"], channels=["C1"])

    assert expression(SLACK, pattern) == (
        'has(event.data.event) && has(event.data.event.channel) && has(event.data.event.text) && event.data.event.channel == "C1" '
        r'&& event.data.event.text.matches(r"(?i)(?:(?:^|[^\pL\pN_])invoice(?:[^\pL\pN_]|$)|(?:^|[^\pL\pN_])refund(?:[^\pL\pN_]|$))")'
    )
    assert expression(SLACK, Pattern()) == ""


def test_the_dispatcher_finds_the_trigger_by_channel_and_sender() -> None:
    pattern = Pattern(keywords=["invoice"], channels=["C1", "C2"], senders=["U1"])

    found = compile_expression(expression(SLACK, pattern)).equalities

    assert [(one.path, one.literals) for one in found] == [
        (("data", "event", "channel"), ("C1", "C2")),
        (("data", "event", "user"), ("U1",)),
    ]


@pytest.mark.parametrize(
    ("shape", "pattern", "field"),
    [
        (replace(CHAT, channel=""), Pattern(channels=["ops"]), "channels"),
        (replace(CHAT, thread=""), Pattern(where=Where.IN_THREAD), "where"),
        (replace(CHAT, texts=("a-b",)), Pattern(keywords=["x"]), "shape"),
        (replace(CHAT, sender='x == "" || true'), Pattern(senders=["x"]), "shape"),
        (replace(CHAT, sender="in"), Pattern(senders=["x"]), "shape"),
        (CHAT, Pattern(keywords=["a\nb"]), "keywords"),
        (CHAT, Pattern(hashtags=["#"]), "hashtags"),
    ],
)
def test_a_pattern_that_makes_no_sense_is_refused(shape: Shape, pattern: Pattern, field: str) -> None:
    with pytest.raises(InvalidPattern) as refused:
        expression(shape, pattern)

    assert list(refused.value.errors) == [field]


@pytest.mark.parametrize(
    "text", ["plain", 'a "quote"', "it's", "back\\slash", "both '\" \\ \\", "tab\t", "ü\u2028", "(?i)\\bx\\b"]
)
def test_a_text_is_the_same_in_an_expression(text: str) -> None:
    found = answer(Question(filter=f"event.data == {literal(text)}"), lambda: context_of({"type": "t", "data": text}))

    assert found.passes and not found.error

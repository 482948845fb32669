from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from agents import AgentRun, Event
from agents.exceptions import NoReplyPlace, Permanent
from agents.kernel.reply_place import ReplyPlace


def test_the_event_is_the_newest_and_events_are_read_once_and_only_on_request() -> None:
    reads = []
    older, newer = an_event(1), an_event(2)

    def read() -> list[Event]:
        reads.append("read")
        return [older, newer]

    run = a_run(read_events=read)

    assert reads == []
    assert (run.event, run.events) == (newer, [older, newer])
    assert reads == ["read"]


def test_the_input_is_the_triggers_mapping_or_else_the_events_data() -> None:
    assert a_run(input={"id": 7}).input == {"id": 7}
    assert a_run(input={}).input == {}
    assert a_run(read_events=lambda: [an_event({"id": 8})]).input == {"id": 8}


def test_emitted_events_are_kept_in_order_under_their_ordinal_or_a_key() -> None:
    run = a_run()

    run.emit("a")
    run.emit("b", {"n": 1}, key="invoice-7", subject="7")
    run.emit("c")

    assert [(each.type, each.data, each.key, each.subject) for each in run.effects.emissions] == [
        ("a", None, "1", ""),
        ("b", {"n": 1}, "invoice-7", "7"),
        ("c", None, "3", ""),
    ]


def test_a_key_is_good_for_one_event_of_a_run() -> None:
    run = a_run()
    run.emit("a", key="same")

    with pytest.raises(ValueError, match="'same'"):
        run.emit("b", key="same")


def test_an_ordinal_that_an_author_has_used_as_a_key_is_refused_too() -> None:
    run = a_run()
    run.emit("a", key="2")

    with pytest.raises(ValueError, match="'2'"):
        run.emit("b")


@pytest.mark.parametrize(
    ("type", "subject", "message"),
    [
        ("a", "x" * 1025, r"emit\('a'\): the subject has 1,025 characters; use at most 1,024"),
        ("a", "\N{OCTOPUS}" * 1000, "the subject has 4,000 bytes in UTF-8; use at most 2,600"),
        ("t" * 256, "", "the type has 256 characters; use at most 255"),
    ],
)
def test_a_type_or_subject_that_no_event_can_have_fails_the_run_at_once(type: str, subject: str, message: str) -> None:
    run = a_run()

    with pytest.raises(Permanent, match=message):
        run.emit(type, subject=subject)

    assert not run.effects.emissions


def test_notices_are_kept_in_order_with_their_urgency() -> None:
    run = a_run()

    run.notify("tea is ready")
    run.notify("fire", urgency="high")

    assert [(notice.text, notice.urgency) for notice in run.effects.notices] == [
        ("tea is ready", "normal"),
        ("fire", "high"),
    ]


def test_a_notice_names_its_topic_its_recipients_and_its_link() -> None:
    run = a_run()

    run.notify("90 %", topic="disk", to="ops", link="https://example.com/d")
    run.notify("95 %", to=["ops", "ada", "ops"])

    first, second = run.effects.notices
    assert (first.topic, first.to, first.link) == ("disk", ("ops",), "https://example.com/d")
    assert (second.topic, second.to, second.link) == ("", ("ops", "ada"), "")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"topic": "x" * 201}, "topic must be a text of at most 200"),
        ({"topic": 7}, "topic must be a text"),
        ({"to": [""]}, "must be a name, or names, of recipients"),
        ({"to": [7]}, "must be a name, or names, of recipients"),
        ({"link": "javascript:alert(1)"}, "does not begin with https:// or http://"),
    ],
)
def test_a_notice_that_makes_no_sense_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        a_run().notify("fire", **wrong)


def test_an_unknown_urgency_is_refused() -> None:
    urgency: Any = "panic"

    with pytest.raises(ValueError, match="panic"):
        a_run().notify("fire", urgency=urgency)


def test_the_next_check_is_so_much_later_and_has_a_reason() -> None:
    run = a_run()

    run.next_check("10m")
    run.next_check(7200, "quiet night")

    assert [(pace.after, pace.reason) for pace in run.effects.paces] == [
        (timedelta(minutes=10), ""),
        (timedelta(hours=2), "quiet night"),
    ]


@pytest.mark.parametrize(("delay", "reason"), [("soon", ""), (-1, ""), ("4000d", ""), ("1h", 7)])
def test_a_next_check_that_makes_no_sense_is_refused(delay: Any, reason: Any) -> None:
    with pytest.raises(ValueError):
        a_run().next_check(delay, reason)


@pytest.mark.parametrize(
    ("delay", "words"), [(-5, "-5 s"), (timedelta(seconds=-5), "-5 s"), (timedelta(days=4000), "4000 d")]
)
def test_a_refused_duration_is_reported_in_plain_words(delay: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"^next_check {words}: use a duration from 0 to ten years$"):
        a_run().next_check(delay)


def test_now_of_a_run_has_a_time_zone() -> None:
    assert a_run().now().utcoffset() == datetime.now(UTC).utcoffset()


@pytest.mark.parametrize(
    ("threads", "found"),
    [(["1.1"], "1.1"), (["1.1", "1.1"], "1.1"), (["1.1", "2.2"], None), ([""], None), (["", "1.1"], None)],
)
def test_messages_of_several_threads_are_in_no_conversation_together(threads: list[str], found: str | None) -> None:
    events = [an_event(thread) for thread in threads]

    def place(event_id: UUID) -> ReplyPlace:
        thread = next(event.data for event in events if event.id == event_id)
        if not thread:
            raise NoReplyPlace("no message")
        return ReplyPlace(kind="slack-thread", to={}, name="Slack", thread=thread)

    assert a_run(read_events=lambda: events, find_place=place).thread_or_none == found


def a_run(**fields: Any) -> AgentRun:
    return AgentRun(**{"id": uuid4(), "agent": "greeter", "read_events": lambda: [an_event(None)], **fields})


def an_event(data: Any) -> Event:
    return Event(id=uuid4(), type="visitor.came", source="door", time=datetime.now(UTC), data=data)

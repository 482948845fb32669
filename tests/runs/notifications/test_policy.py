"""The policy, for every combination of rules, history and time, also where clocks change."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runs.notifications.policy import (
    History,
    Hold,
    Merge,
    News,
    QuietHours,
    Rules,
    Said,
    Send,
    Suppress,
    decide,
    is_quiet,
)

VIENNA = ZoneInfo("Europe/Vienna")
NOON = datetime(2026, 11, 20, 11, tzinfo=UTC)  # in Vienna
NIGHT = QuietHours(start=time(22), until=time(7))
ZONES = st.sampled_from(
    ["UTC", "Europe/Vienna", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Cairo"]
)
TIMES = st.times().map(lambda one: one.replace(microsecond=0))
MOMENTS = st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))


def quiet_hours() -> st.SearchStrategy[QuietHours]:
    pairs = st.tuples(TIMES, TIMES).filter(lambda pair: pair[0] != pair[1])
    return pairs.map(lambda pair: QuietHours(start=pair[0], until=pair[1]))


@st.composite
def rules(draw: st.DrawFn) -> Rules:
    return Rules(
        zone=ZoneInfo(draw(ZONES)),
        quiet=draw(st.none() | quiet_hours()),
        spacing=draw(st.timedeltas(timedelta(), timedelta(hours=6))),
        digest_hour=draw(st.none() | st.integers(0, 23)),
        least_urgency=draw(st.sampled_from(["low", "normal", "high"])),
        silenced_until=draw(st.none() | MOMENTS),
        active=draw(st.booleans()),
    )


@st.composite
def histories(draw: st.DrawFn, now: datetime) -> History:
    past = st.timedeltas(timedelta(), timedelta(days=3)).map(lambda ago: now - ago)
    last = st.builds(Said, text=st.sampled_from("ab"), at=past, is_held=st.booleans())
    return History(last_at=draw(st.none() | past), held_until=draw(st.none() | MOMENTS), said=draw(st.none() | last))


NEWS = st.builds(
    News,
    urgency=st.sampled_from(["low", "normal", "high"]),
    topic=st.sampled_from(["", "disk"]),
    text=st.sampled_from("ab"),
)


@given(rules=rules(), news=NEWS, now=MOMENTS, data=st.data())
def test_every_verdict_keeps_the_rules_of_the_recipient(
    rules: Rules, news: News, now: datetime, data: st.DataObject
) -> None:
    history = data.draw(histories(now))

    verdict = decide(rules, news, history, now)

    last = history.said
    match verdict:
        case Hold(until=until, reason=reason):
            assert now < until <= now + timedelta(days=4)
            assert reason and not news.is_urgent and not history.held_until
            assert rules.quiet is None or not is_quiet(rules.quiet, rules.zone, until)
            assert not history.last_at or rules.digest_hour is not None or until >= history.last_at + rules.spacing
        case Send() if not news.is_urgent:
            assert rules.digest_hour is None and not history.held_until
            assert rules.quiet is None or not is_quiet(rules.quiet, rules.zone, now)
            assert not history.last_at or now >= history.last_at + rules.spacing
        case Send():
            assert rules.active and (not rules.silenced_until or now >= rules.silenced_until)
        case Merge():
            assert history.held_until and not news.is_urgent
        case Suppress(is_rerouted=is_rerouted):
            assert not is_rerouted or news.is_urgent
    if news.topic and last and last.text == news.text and not last.is_held and now - last.at < rules.repeat_after:
        assert isinstance(verdict, Suppress)


@given(zone=ZONES, quiet=quiet_hours(), now=MOMENTS)
@example(
    zone="Europe/Vienna",
    quiet=QuietHours(start=time(22), until=time(2, 30)),
    now=datetime(2026, 10, 25, 0, 10, tzinfo=UTC),
)
@example(
    zone="Europe/Vienna",
    quiet=QuietHours(start=time(22), until=time(2, 30)),
    now=datetime(2026, 10, 25, 1, 10, tzinfo=UTC),
)
@example(
    zone="Europe/Vienna",
    quiet=QuietHours(start=time(22), until=time(2, 30)),
    now=datetime(2026, 3, 29, 0, 30, tzinfo=UTC),
)
def test_a_message_that_quiet_hours_hold_is_sent_right_after_them(zone: str, quiet: QuietHours, now: datetime) -> None:
    one = Rules(zone=ZoneInfo(zone), quiet=quiet)

    verdict = decide(one, News(urgency="normal", topic="", text="a"), History(), now)

    if not is_quiet(quiet, one.zone, now):
        assert verdict == Send()
        return
    assert isinstance(verdict, Hold)
    # All of the time before is quiet, but for an hour where the clock jumps over the end.
    minutes = int((verdict.until - now) / timedelta(minutes=1))
    loud = [past for past in range(0, minutes, 7) if not is_quiet(quiet, one.zone, now + timedelta(minutes=past))]
    assert len(loud) <= 60 / 7 + 1


def test_quiet_hours_end_by_the_clock_on_the_wall() -> None:
    one = Rules(zone=VIENNA, quiet=NIGHT)
    before_the_change = datetime(2026, 10, 24, 21, tzinfo=UTC)  # 23:00; the clock is set back at night

    verdict = decide(one, News(urgency="low", topic="", text="a"), History(), before_the_change)

    assert verdict == Hold(until=datetime(2026, 10, 25, 6, tzinfo=UTC), reason="quiet hours")


def test_an_urgent_one_passes_quiet_hours_spacing_digest_and_what_is_held() -> None:
    one = Rules(zone=VIENNA, quiet=NIGHT, spacing=timedelta(hours=1), digest_hour=8)
    history = History(last_at=NOON, held_until=NOON + timedelta(hours=9))
    midnight = NOON + timedelta(hours=12)

    assert decide(one, News(urgency="high", topic="", text="a"), history, midnight) == Send()


@pytest.mark.parametrize("urgency", ["low", "normal", "high"])
def test_the_same_text_about_a_topic_is_nothing_new_however_urgent(urgency: str) -> None:
    history = History(said=Said(text="90 %", at=NOON - timedelta(hours=23)))
    news = News(urgency=urgency, topic="disk", text="90 %")

    assert decide(Rules(zone=VIENNA), news, history, NOON) == Suppress(reason="nothing new about its topic")
    assert decide(Rules(zone=VIENNA), news, history, NOON + timedelta(hours=1)) == Send()


def test_a_held_text_does_not_suppress_the_same_text_when_it_is_urgent() -> None:
    history = History(held_until=NOON + timedelta(hours=1), said=Said(text="90 %", at=NOON, is_held=True))

    assert decide(Rules(zone=VIENNA), News(urgency="high", topic="disk", text="90 %"), history, NOON) == Send()
    assert isinstance(
        decide(Rules(zone=VIENNA), News(urgency="low", topic="disk", text="90 %"), history, NOON), Suppress
    )


def test_spacing_counts_from_the_last_message() -> None:
    one = Rules(zone=VIENNA, spacing=timedelta(minutes=30))

    verdict = decide(
        one, News(urgency="normal", topic="", text="a"), History(last_at=NOON - timedelta(minutes=10)), NOON
    )

    assert verdict == Hold(until=NOON + timedelta(minutes=20), reason="spacing of 30 min")


def test_without_spacing_a_message_on_its_way_holds_nothing() -> None:
    a_moment_later = History(last_at=NOON + timedelta(microseconds=1))  # the time of asking, while one is on its way

    assert decide(Rules(zone=VIENNA), News(urgency="low", topic="", text="a"), a_moment_later, NOON) == Send()


def test_a_digest_comes_at_its_hour_and_after_quiet_hours() -> None:
    news = News(urgency="normal", topic="", text="a")
    early = Rules(zone=VIENNA, digest_hour=5, quiet=NIGHT)

    assert decide(Rules(zone=VIENNA, digest_hour=8), news, History(), NOON) == Hold(
        until=datetime(2026, 11, 21, 7, tzinfo=UTC), reason="daily digest"
    )
    assert decide(early, news, History(), NOON) == Hold(
        until=datetime(2026, 11, 21, 6, tzinfo=UTC), reason="daily digest, then quiet hours"
    )


def test_silence_suppresses_all_messages_and_reroutes_urgent_ones() -> None:
    one = Rules(zone=VIENNA, silenced_until=NOON + timedelta(hours=1))

    urgent = decide(one, News(urgency="high", topic="", text="a"), History(), NOON)
    normal = decide(one, News(urgency="normal", topic="", text="a"), History(), NOON)

    assert urgent == Suppress(reason="silenced until 2026-11-20 13:00 (Europe/Vienna)", is_rerouted=True)
    assert normal == Suppress(reason="silenced until 2026-11-20 13:00 (Europe/Vienna)")
    assert decide(one, News(urgency="low", topic="", text="a"), History(), NOON + timedelta(hours=1)) == Send()


def test_urgency_below_the_least_is_suppressed() -> None:
    one = Rules(zone=VIENNA, least_urgency="normal")

    assert decide(one, News(urgency="low", topic="", text="a"), History(), NOON) == Suppress(
        reason="urgency low is below normal"
    )

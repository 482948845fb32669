from datetime import UTC, datetime, timedelta

import pytest

from agents import on


def test_an_event_trigger_listens_to_globs_from_any_source_or_one() -> None:
    assert on.event("invoice.*", "customer.created", filter="event.data.amount > 3") == on.EventTrigger(
        types=("invoice.*", "customer.created"), filter="event.data.amount > 3"
    )
    assert on.event("issue.triaged", source="run").source == "run"


def test_a_webhook_trigger_without_types_takes_every_delivery_of_its_source() -> None:
    assert on.webhook("github") == on.EventTrigger(types=("*",), source="github")
    assert on.webhook("github", "issues.opened").types == ("issues.opened",)


def test_a_crontab_has_a_zone_and_shows_what_becomes_of_missed_ticks() -> None:
    declared = on.cron("0 9 * * mon-fri", tz="Europe/Vienna", catch_up="all", slug="mornings")

    assert (declared.cron, declared.tz, declared.policy, declared.slug) == (
        "0 9 * * mon-fri",
        "Europe/Vienna",
        {"catch_up": "all"},
        "mornings",
    )


def test_a_policy_that_does_not_exist_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"on.every\(\) got an unexpected keyword argument 'missed'"):
        on.every("1h", missed="all")  # type: ignore[call-arg]


def test_a_rule_may_be_in_words() -> None:
    declared = on.schedule("every weekday at 09:00", tz="Europe/Vienna", jitter="5m")

    assert (declared.words, declared.tz, declared.policy) == (
        "every weekday at 09:00",
        "Europe/Vienna",
        {"jitter": "5m"},
    )


def test_a_heartbeat_is_an_interval_with_a_pace_for_its_agent() -> None:
    declared = on.heartbeat("30m", pace=("5m", "4h"), active_hours="08:00-20:00", tz="Europe/Vienna", jitter="1m")

    assert declared.every == timedelta(minutes=30)
    assert declared.policy == {
        "kind": "heartbeat",
        "pace_min": timedelta(minutes=5),
        "pace_max": timedelta(hours=4),
        "active_hours": "08:00-20:00",
        "active_zone": "Europe/Vienna",
        "jitter": "1m",
    }


def test_an_interval_is_a_duration() -> None:
    assert on.every("1h30m").every == timedelta(minutes=90)
    assert on.every(5).every == timedelta(seconds=5)


def test_an_instant_needs_an_offset() -> None:
    assert on.at("2026-12-01T09:00+01:00").at == datetime(2026, 12, 1, 8, tzinfo=UTC)
    assert on.at(datetime(2026, 12, 1, tzinfo=UTC)).at == datetime(2026, 12, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="no offset"):
        on.at("2026-12-01T09:00")
    with pytest.raises(ValueError, match="no offset"):
        on.at(datetime(2026, 12, 1))  # noqa: DTZ001


def test_an_invalid_instant_is_refused_with_a_form_that_is_accepted() -> None:
    with pytest.raises(ValueError, match="tomorrow") as refused:
        on.at("tomorrow")

    example = str(refused.value).rpartition("use e.g. ")[2]
    assert on.at(example).at == datetime(2026, 12, 1, 8, tzinfo=UTC)

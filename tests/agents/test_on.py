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


def test_a_crontab_has_a_zone_and_says_what_becomes_of_missed_ticks() -> None:
    declared = on.cron("0 9 * * mon-fri", tz="Europe/Vienna", missed="all", slug="mornings")

    assert (declared.cron, declared.tz, declared.missed, declared.slug) == (
        "0 9 * * mon-fri",
        "Europe/Vienna",
        "all",
        "mornings",
    )


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

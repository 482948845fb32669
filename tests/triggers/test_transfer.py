"""Triggers carried from one system to another as a file."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django_celery_beat.models import PeriodicTask
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import AgentRun, agent, on, registry
from runs.models import AuditEntry
from tests.runs.test_commands import run_command
from tests.support.examples import some_of
from tests.support.outbound import subscribe
from triggers.declarations import overrides, sync
from triggers.dispatch.hold import pause
from triggers.models import ExclusionCalendar, MetricDetector, Schedule, Source, Subscription, Trigger
from triggers.schedules.calendars import create_calendar
from triggers.schedules.edit import create_schedule, edit_schedule, pause_schedule
from triggers.schedules.rules.as_json import parse_rule
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.terms.policy import SchedulePolicy
from triggers.sources.edit import create_source
from triggers.sources.metrics.arm import arm, disarm
from triggers.sources.metrics.drift import watch
from triggers.sources.secrets import rotate
from triggers.transfer.carry_out import Import, import_triggers
from triggers.transfer.check import ImportRefused
from triggers.transfer.export import export_triggers

pytestmark = pytest.mark.sampled


@pytest.fixture(autouse=True)
def known_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the system here: one agent with a trigger and one with a schedule of its own, one with none."""
    monkeypatch.setattr(registry, "_agents", {})
    declare("greeter")
    declare("billing", on.event("invoice.*"), key="event.data.customer")
    declare("digest", on.cron("0 9 * * mon-fri", tz="Europe/Vienna"))


def declare(name: str, *triggers: Any, **fields: Any) -> None:
    @agent(name, triggers=triggers, **fields)
    def body(run: AgentRun) -> None: ...


def make_triggers() -> None:
    """What operators made and changed on a system."""
    sync.sync()
    shop = Source.objects.create(slug="shop", kind="github", settings={})
    rotate(shop, by="test")
    vip = Trigger.objects.create(
        slug="vip", agent="greeter", source="shop", types=["customer.*"], filter="event.data.vip", input={"id": "event.data.id"},
        key="event.data.id", key_limit=3, overlap="queue", policy={"retries": 1, "rate": "10/h", "debounce": 5},
        tools=["read"],
    )  # fmt: skip
    create_calendar(slug="holidays", days="*-12-25 Christmas", by="test")
    policy = SchedulePolicy(catch_up="all", jitter=timedelta(minutes=5), exclude=("holidays",))
    mornings, then = Cron.parse("30 8 * * *", "Asia/Kathmandu"), Clocked.parse("2050-01-01T08:00:00+02:00")
    create_schedule(name="mornings", trigger=vip, rule=mornings, policy=policy, by="test")
    create_schedule(name="often", trigger=vip, rule=Interval.parse("90s"), by="test")
    pause_schedule(create_schedule(name="then", trigger=vip, rule=then, by="test"), by="test")
    overrides.override(Trigger.objects.get(slug="billing"), {"policy": {"priority": 1}, "enabled": False}, by="test")
    edit_schedule(
        Schedule.objects.get(trigger__slug="digest"), rule=Cron.parse("0 7 * * *", "Europe/Vienna"), by="test"
    )


def empty_the_system() -> None:
    PeriodicTask.objects.all().delete()
    Trigger.objects.all().delete()
    Source.objects.filter(slug="shop").delete()
    ExclusionCalendar.objects.all().delete()
    sync.sync()


def content() -> dict[str, Any]:
    return export_triggers().content


def entry(kind: str, name: str, **changes: Any) -> dict[str, Any]:
    """A file that holds one thing of the system, changed."""
    named = {"sources": "slug", "triggers": "slug", "schedules": "name"}[kind]
    [found] = [one for one in content()[kind] if one[named] == name]
    return file(**{kind: [{**found, **changes}]})


def file(**parts: Any) -> dict[str, Any]:
    return {"format": "wakeful triggers", "version": 1, **parts}


def words_of(done: Import) -> list[str]:
    return [f"{'+' if change.is_new else '~'} {change.what}: {', '.join(change.fields)}" for change in done.changes]


def refused(content: Any) -> list[str]:
    with pytest.raises(ImportRefused) as refusal, transaction.atomic():
        import_triggers(content, by="cli:ada")
    return refusal.value.problems


# The file


@pytest.mark.django_db
def test_the_file_holds_only_objects_and_changes_of_operators() -> None:
    make_triggers()

    exported = content()

    assert [source["slug"] for source in exported["sources"]] == ["shop"]
    assert exported["triggers"] == [
        {"slug": "billing", "agent": "billing", "enabled": False, "declared": True, "policy": {"priority": 1}},
        {"slug": "digest", "agent": "digest", "enabled": True, "declared": True},
        {
            "slug": "vip", "agent": "greeter", "enabled": True, "source": "shop", "types": ["customer.*"],
            "filter": "event.data.vip", "input": {"id": "event.data.id"}, "key": "event.data.id", "key_limit": 3,
            "overlap": "queue", "policy": {"retries": 1, "rate": "10/h", "debounce": 5}, "tools": ["read"],
        },
    ]  # fmt: skip
    policy = SchedulePolicy(catch_up="all", jitter=timedelta(minutes=5), exclude=("holidays",))
    assert exported["calendars"] == [{"slug": "holidays", "days": "*-12-25 Christmas"}]
    assert exported["schedules"] == [
        {"name": "digest", "trigger": "digest", "enabled": True, "declared": True, "cron": "0 7 * * *", "tz": "Europe/Vienna"},
        {"name": "mornings", "trigger": "vip", "enabled": True, "cron": "30 8 * * *", "tz": "Asia/Kathmandu", **policy.dump()},
        {"name": "often", "trigger": "vip", "enabled": True, "every": 90.0, **SchedulePolicy().dump()},
        {"name": "then", "trigger": "vip", "enabled": False, "at": "2050-01-01T06:00:00+00:00", **SchedulePolicy().dump()},
    ]  # fmt: skip


@pytest.mark.django_db
def test_an_export_contains_no_secret_and_no_state() -> None:
    make_triggers()
    before = content()

    rotate(Source.objects.get(slug="shop"), by="test")
    pause(Trigger.objects.get(slug="vip"), reason="broken", by="test")

    assert content() == before
    assert "secret" not in json.dumps(before)


@pytest.mark.django_db
def test_some_triggers_come_with_their_schedules_and_sources_alone() -> None:
    make_triggers()

    exported = export_triggers(["billing"]).content

    assert [one["slug"] for one in exported["triggers"]] == ["billing"]
    assert (exported["sources"], exported["schedules"]) == ([], [])
    with pytest.raises(Trigger.DoesNotExist, match="nobody"):
        export_triggers(["billing", "nobody"])


@pytest.mark.django_db
def test_objects_that_cannot_be_exported_are_noted() -> None:
    make_triggers()
    PeriodicTask.objects.filter(name="often").update(interval=None)

    notes = export_triggers().notes

    assert notes[0].startswith("schedule often is skipped")


# There and back


@pytest.mark.django_db
def test_imported_into_an_empty_system_it_gives_the_same_file_again() -> None:
    make_triggers()
    exported = content()
    empty_the_system()

    done = import_triggers(exported, by="cli:ada")

    assert content() == exported
    assert any("has no secret yet" in note for note in done.notes)
    vip = Trigger.objects.get(slug="vip")
    assert (vip.declared, vip.overrides, vip.key_limit) == (None, [], 3)


@pytest.mark.django_db
def test_imported_twice_it_changes_nothing_more() -> None:
    make_triggers()

    assert import_triggers(content(), by="cli:ada").changes == []


@pytest.mark.django_db
def test_a_change_of_a_declared_trigger_is_the_operators_from_then_on() -> None:
    make_triggers()
    exported = content()
    empty_the_system()

    import_triggers(exported, by="cli:ada")
    sync.sync()

    billing, digest = Trigger.objects.get(slug="billing"), Trigger.objects.get(slug="digest")
    assert (billing.policy, billing.overrides, billing.enabled) == ({"priority": 1}, ["policy"], False)
    assert (digest.overrides, digest.schedules.get().task.crontab.hour) == (["rule"], "7")


@pytest.mark.django_db
def test_each_change_is_reported_with_its_old_value_and_audited() -> None:
    make_triggers()

    done = import_triggers(entry("triggers", "vip", filter="event.data.gold", enabled=False), by="cli:ada")

    [change] = done.changes
    assert change.fields == {"enabled": (True, False), "filter": ("event.data.vip", "event.data.gold")}
    assert "filter: 'event.data.vip' → 'event.data.gold'" in str(change)
    assert AuditEntry.objects.filter(by="cli:ada", kind="trigger").latest("id").detail == {
        "filter": "event.data.gold",
        "enabled": False,
        "was": {"filter": "event.data.vip", "enabled": True},
    }


@pytest.mark.django_db
def test_fields_that_the_file_does_not_name_are_kept() -> None:
    make_triggers()
    before = content()

    done = import_triggers(file(triggers=[{"slug": "vip", "filter": ""}]), by="cli:ada")

    assert words_of(done) == ["~ trigger vip: filter"]
    assert Trigger.objects.count() == len(before["triggers"])
    assert Trigger.objects.get(slug="vip").types == ["customer.*"]


@pytest.mark.django_db
def test_schedules_follow_the_file() -> None:
    make_triggers()
    changed = [
        {"name": "mornings", "cron": "0 6 * * *", "tz": "UTC", "catch_up": "skip"},
        {"name": "often", "enabled": False},
        {"name": "then", "enabled": True},
        {"name": "new", "trigger": "billing", "every": 60, "enabled": False},
    ]

    done = import_triggers(file(schedules=changed), by="cli:ada")

    assert words_of(done) == [
        "~ schedule mornings: catch_up, rule",
        "~ schedule often: enabled",
        "~ schedule then: enabled",
        "+ schedule new: trigger, every, enabled",
    ]
    assert [PeriodicTask.objects.get(name=name).enabled for name in ("mornings", "often", "then", "new")] == [
        True,
        False,
        True,
        False,
    ]
    assert import_triggers(file(schedules=changed), by="cli:ada").changes == []


@pytest.mark.django_db
def test_calendars_follow_the_file_and_its_schedules_may_name_them() -> None:
    make_triggers()
    calendars = [{"slug": "feasts", "days": "*-01-01"}, {"slug": "holidays", "days": "*-12-26"}]
    schedules = [{"name": "often", "exclude": ["feasts"]}]

    done = import_triggers(file(calendars=calendars, schedules=schedules), by="cli:ada")

    assert words_of(done) == ["+ calendar feasts: days", "~ calendar holidays: days", "~ schedule often: exclude"]
    assert import_triggers(file(calendars=calendars, schedules=schedules), by="cli:ada").changes == []


@pytest.mark.django_db
def test_subscriptions_follow_the_file_but_for_their_urls() -> None:
    subscribe("https://example.com/hidden-path", "out", types=["order.*"], filter="event.data.amount > 100")
    exported = content()["subscriptions"]
    assert exported == [
        {
            "slug": "out", "address": "https://example.com/…", "enabled": True, "sources": [], "types": ["order.*"],
            "filter": "event.data.amount > 100",
        }
    ]  # fmt: skip
    assert "hidden-path" not in json.dumps(content())

    changed = import_triggers(file(subscriptions=[{**exported[0], "types": ["*"]}]), by="cli:ada")
    assert words_of(changed) == ["~ subscription out: types"]

    Subscription.objects.all().delete()
    left_out = import_triggers(file(subscriptions=exported), by="cli:ada")
    assert not left_out.changes and 'add "url"' in left_out.notes[0]
    with_url = file(subscriptions=[{**exported[0], "url": "https://example.com/other-path"}])
    made = import_triggers(with_url, by="cli:ada")
    assert words_of(made) == ["+ subscription out: enabled, sources, types, filter"]
    assert not import_triggers(with_url, by="cli:ada").changes
    assert content()["subscriptions"] == exported


@pytest.mark.django_db
def test_a_schedule_that_would_never_fire_refuses_the_file() -> None:
    make_triggers()
    never = {"name": "new", "trigger": "vip", "cron": "0 9 * * *", "active_hours": "10:00-11:00"}

    with pytest.raises(ImportRefused, match="schedule new: .*every fire is closed out"):
        import_triggers(file(schedules=[{"name": "often", "jitter": 3}, never]), by="cli:ada")

    assert not Schedule.objects.exclude(jitter=timedelta(minutes=5)).exclude(jitter=timedelta(0)).exists()


@pytest.mark.django_db
def test_a_schedule_for_a_past_time_is_left_out_with_a_note() -> None:
    make_triggers()

    done = import_triggers(
        file(schedules=[{"name": "gone", "trigger": "vip", "at": "2020-01-01T00:00:00Z"}]), by="cli:ada"
    )

    assert (done.changes, len(done.notes)) == ([], 1)
    assert not PeriodicTask.objects.filter(name="gone").exists()


@pytest.mark.django_db
def test_a_dry_run_shows_the_same_and_changes_nothing() -> None:
    make_triggers()
    exported = content()
    empty_the_system()
    before, entries = content(), AuditEntry.objects.count()

    foreseen = import_triggers(exported, by="cli:ada", dry_run=True)

    assert (content(), AuditEntry.objects.count()) == (before, entries)
    assert words_of(foreseen) == words_of(import_triggers(exported, by="cli:ada"))


# Detectors

THRESHOLD: dict[str, Any] = {"name": "threshold", "settings": {"above": "90", "margin": "5"}}
MISSING: dict[str, Any] = {"name": "missing", "settings": {"after": "15m"}}
STATES = {"expected": "SELECT 1", "actual": "SELECT 2"}


def metrics(*detectors: Any, **changes: Any) -> dict[str, Any]:
    return file(sources=[{"slug": "load", "kind": "pushed", "detectors": list(detectors), **changes}])


@pytest.mark.django_db
def test_sources_carry_their_armed_detectors() -> None:
    load = create_source("load", kind="pushed", settings={"every": "1m"}, by="test")
    create_source("idle", kind="pushed", settings={}, by="test")
    arm(load, "threshold", THRESHOLD["settings"], by="test")
    arm(load, "missing", MISSING["settings"], by="test")
    disarm(arm(load, "z_score", {}, by="test"), by="test")
    exported = content()
    assert [one.get("detectors") for one in exported["sources"]] == [None, [THRESHOLD, MISSING]]
    MetricDetector.objects.all().delete()
    Source.objects.filter(slug__in=["load", "idle"]).delete()

    done = import_triggers(exported, by="cli:ada")

    assert content() == exported
    assert "+ source load: kind, enabled, trusted, settings, detectors" in words_of(done)
    assert import_triggers(exported, by="cli:ada").changes == []
    assert AuditEntry.objects.filter(by="cli:ada", action="arm").count() == 2


@pytest.mark.django_db
def test_a_detector_that_stays_keeps_what_it_has_learned() -> None:
    import_triggers(metrics(THRESHOLD, MISSING), by="cli:ada")
    kept = MetricDetector.objects.get(name="missing")

    done = import_triggers(metrics(MISSING, {"name": "z_score", "settings": {}}), by="cli:ada")

    assert words_of(done) == ["~ source load: detectors"]
    assert MetricDetector.objects.filter(disarmed_at=None).earliest("id") == kept
    assert set(MetricDetector.objects.filter(disarmed_at=None).values_list("name", flat=True)) == {"missing", "z_score"}


@pytest.mark.django_db
def test_a_file_that_names_no_detectors_leaves_them_armed() -> None:
    import_triggers(metrics(THRESHOLD), by="cli:ada")

    import_triggers(file(sources=[{"slug": "load", "kind": "pushed", "enabled": False}]), by="cli:ada")

    assert MetricDetector.objects.get().disarmed_at is None


@pytest.mark.django_db
def test_a_source_of_drift_whose_detector_is_disarmed_is_imported_as_such() -> None:
    state = create_source("state", kind="drift", settings=STATES, by="test")
    assert "detectors" not in content()["sources"][0]
    watch(state.pk, hold="0s")
    disarm(MetricDetector.objects.get(), by="test")
    exported = content()
    MetricDetector.objects.all().delete()
    Source.objects.filter(slug="state").delete()

    import_triggers(exported, by="cli:ada")
    watch(Source.objects.get(slug="state").pk, hold="0s")

    assert content() == exported and exported["sources"][0]["detectors"] == []


# What is refused

VIP: dict[str, Any] = {"slug": "vip", "agent": "greeter"}
REFUSED = [
    ([], 'format: must be "wakeful triggers"'),
    ({"format": "wakeful triggers", "version": 2}, "version: is 2"),
    (file(agents=[]), "agents: unknown; use sources"),
    (file(triggers={}), "triggers: must be a list"),
    (file(triggers=[7]), "triggers[0]: must be an object"),
    (file(triggers=[{"agent": "greeter"}]), "triggers[0].slug: is missing"),
    (file(triggers=[VIP, VIP]), "vip occurs 2 times"),
    (file(triggers=[{**VIP, "colour": "red"}]), "triggers[0].colour: unknown"),
    (file(triggers=[{**VIP, "enabled": 1}]), "triggers[0].enabled: 1 has the wrong type"),
    (file(triggers=[{**VIP, "key_limit": True}]), "triggers[0].key_limit: True has the wrong type"),
    (file(triggers=[{**VIP, "slug": "V I P"}]), "trigger V I P: slug"),
    (file(triggers=[{"slug": "vip"}]), "trigger vip: agent: is missing"),
    (file(triggers=[{**VIP, "agent": "nobody"}]), "WAKEFUL_APPS"),
    (file(triggers=[{**VIP, "source": "moon"}]), "trigger vip: source"),
    (file(triggers=[{**VIP, "types": [1]}]), "trigger vip: types"),
    (file(triggers=[{**VIP, "filter": "event.data.("}]), "trigger vip: filter"),
    (file(triggers=[{**VIP, "filter": "person.age > 3"}]), "filter: line 1, column 1, at 'person': is unknown"),
    (file(triggers=[{**VIP, "input": {"id": 7}}]), "trigger vip: input.id"),
    (file(triggers=[{**VIP, "overlap": "both"}]), "trigger vip: overlap"),
    (file(triggers=[{**VIP, "policy": {"retries": -1}}]), "trigger vip: policy: retries"),
    (file(triggers=[{**VIP, "policy": {"rate": "often"}}]), "10/h"),
    (file(triggers=[{**VIP, "key_limit": 0}]), "key_limit is 0"),
    (file(triggers=[{**VIP, "declared": True}]), "sync_agents"),
    (file(triggers=[{"slug": "billing", "agent": "greeter"}]), "has agent billing"),
    (file(sources=[{"slug": "shop", "kind": "carrier-pigeon"}]), "source shop: kind"),
    (file(sources=[{"slug": "shop", "kind": "github", "settings": {"colour": "red"}}]), "source shop: settings.colour"),
    (file(sources=[{"slug": "cli", "kind": "github"}]), "has kind cli"),
    (file(sources=[{"slug": "shop", "kind": "github", "detectors": []}]), "source shop: detectors: is only for metrics"),
    (metrics("threshold"), "source load: detectors[0]: must be an object"),
    (metrics(MISSING, {"name": "nose", "settings": {}}), "source load: detectors[1].name: 'nose' is unknown"),
    (metrics({**THRESHOLD, "settings": {"above": "high"}}), "detectors[0].settings.above: must be a number"),
    (file(schedules=[{"name": "x", "trigger": "nobody", "every": 60}]), "schedule x: trigger"),
    (file(schedules=[{"name": "x", "trigger": "billing"}]), "exactly one of cron, every, at and solar"),
    (file(schedules=[{"name": "x", "trigger": "billing", "every": 60, "cron": "* * * * *"}]), "exactly one of"),
    (file(schedules=[{"name": "x", "trigger": "billing", "cron": "61 * * * *"}]), "schedule x: "),
    (file(schedules=[{"name": "x", "trigger": "billing", "every": 60, "catch_up": "some"}]), "schedule x: catch_up"),
    (file(schedules=[{"name": "x", "trigger": "billing", "every": 60, "jitter": "soon"}]), "schedule x: jitter"),
    (file(schedules=[{"name": "x", "trigger": "billing", "every": 60, "exclude": ["no"]}]), "schedule x: exclude: there is no calendar"),
    (file(calendars=[{"slug": "feasts", "days": "25.12."}]), "calendar feasts: days: line 1"),
    (file(subscriptions=[{"slug": "out", "url": "nowhere", "types": ["*"]}]), "subscription out: url: "),
    (file(subscriptions=[{"slug": "out", "url": "https://example.com/", "types": [1]}]), "subscription out: types"),
    (file(schedules=[{"name": "x", "trigger": "billing", "declared": True}]), "sync_agents"),
    (file(schedules=[{"name": "digest", "trigger": "billing", "every": 60}]), "another schedule"),
]  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize(("content", "expected"), REFUSED, ids=[expected for _, expected in REFUSED])
def test_invalid_entries_are_named_and_nothing_is_changed(content: Any, expected: str) -> None:
    sync.sync()

    problems = refused(content)

    assert any(expected in problem for problem in problems), problems
    assert set(Trigger.objects.values_list("slug", flat=True)) == {"billing", "digest"}


@pytest.mark.django_db
def test_all_errors_of_a_file_are_shown_at_once() -> None:
    problems = refused(file(triggers=[{**VIP, "filter": "(", "overlap": "both"}, {"slug": "two", "agent": "nobody"}]))

    assert len(problems) == 3


@pytest.mark.django_db
def test_an_entry_that_names_a_refused_entry_is_no_further_error() -> None:
    problems = refused(
        file(
            sources=[{"slug": "shop", "kind": "carrier-pigeon"}],
            triggers=[{**VIP, "source": "shop", "overlap": "both"}],
            calendars=[{"slug": "feasts", "days": "25.12."}],
            schedules=[
                {"name": "x", "trigger": "vip", "every": 60, "jitter": "soon"},
                {"name": "y", "trigger": "vip", "every": 60, "exclude": ["feasts"]},
            ],
        )
    )

    assert [problem.partition(": ")[0] for problem in problems] == [
        "source shop",
        "trigger vip",
        "calendar feasts",
        "schedule x",
    ]


@pytest.mark.django_db
def test_a_built_in_source_cannot_be_changed_by_a_file() -> None:
    assert refused(file(sources=[{"slug": "cli", "enabled": False}]))[0].startswith(
        "source cli: kind: 'cli' is unknown"
    )


# Whatever an operator may make

NAMES = st.from_regex(r"[a-zA-Z][a-z0-9_]{0,8}(-[a-z0-9]{1,5})?", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "retries": st.integers(0, 100), "priority": st.integers(0, 9), "queue": NAMES, "timeout": st.floats(0, 1e6),
        "rate": st.sampled_from(["10/h", "1000/7d", "1/30s"]), "overflow": st.sampled_from(["drop", "delay"]),
        "debounce": st.integers(0, 3600), "batch": st.integers(0, 100),
    },
)  # fmt: skip
TRIGGERS = st.fixed_dictionaries(
    {
        "agent": st.sampled_from(["greeter", "billing", "digest"]),
        "enabled": st.booleans(),
        "types": st.lists(TEXTS.filter(bool), max_size=3),
        "filter": st.sampled_from(["", "event.data.vip", 'event.subject == "ä → \\"☃\\""']),
        "key": st.sampled_from(["", "event.data.id"]),
        "input": st.dictionaries(TEXTS, st.sampled_from(["event.data", "event.id"]), max_size=2),
        "key_limit": st.integers(1, 1000),
        "overlap": st.sampled_from(["allow", "skip", "queue", "queue_one"]),
        "policy": POLICIES,
    }
)
RULES = st.one_of(
    st.fixed_dictionaries({"every": st.integers(1, 10**6)}),
    st.fixed_dictionaries({"every": st.integers(1, 5000).map(lambda tenths: tenths / 10)}),
    st.fixed_dictionaries(
        {
            "cron": st.sampled_from(
                ["* * * * *", "*/5 0,12 1-7 * *", "0 9 * jan-mar mon-fri", "0 0 * * 7", "59 23 29 2 *"]
            ),
            "tz": st.sampled_from(["UTC", "Europe/Vienna", "Pacific/Apia"]),
        }
    ),
    st.fixed_dictionaries({"at": st.datetimes().map(lambda at: at.replace(year=2090, day=1).isoformat() + "Z")}),
)
POLICIES = st.fixed_dictionaries(
    {"catch_up": st.sampled_from(["latest", "skip", "all"])},
    optional={
        "jitter": st.integers(0, 600),
        "max_fires": st.integers(1, 9),
        "active_hours": st.sampled_from(["", "00:00-12:00, 12:00-24:00"]),
        "active_zone": st.sampled_from(["", "Asia/Kathmandu"]),
        "exclude": st.sampled_from([[], ["holidays"]]),
        "end": st.just("2200-01-01T00:00:00Z"),
        "data": st.none() | st.dictionaries(st.text("abc"), st.booleans() | st.integers(), max_size=2),
    },
)
SCHEDULES = st.tuples(RULES, POLICIES, st.booleans())


@pytest.mark.django_db
@settings(max_examples=some_of(60))
@given(
    triggers=st.dictionaries(NAMES.filter(lambda name: name not in ("billing", "digest")), TRIGGERS, max_size=3),
    schedules=st.lists(SCHEDULES, max_size=3),
)
def test_objects_of_operators_survive_export_and_import(
    triggers: dict[str, Any], schedules: list[tuple[dict[str, Any], Any, bool]]
) -> None:
    with transaction.atomic():
        create_calendar(slug="holidays", days="2000-01-01 Long past", by="test")
        for slug, fields in triggers.items():
            Trigger.objects.create(slug=slug, **fields)
        for number, (rule, policy, is_on) in enumerate(schedules if triggers else []):
            owner = Trigger.objects.get(slug=sorted(triggers)[number % len(triggers)])
            made = create_schedule(
                name=f"schedule {number} ☃",
                trigger=owner,
                rule=parse_rule(**rule),
                policy=SchedulePolicy.parse(policy),
                by="test",
            )
            if not is_on:
                pause_schedule(made, by="test")
        exported = content()
        carried = json.loads(json.dumps(exported))
        PeriodicTask.objects.all().delete()
        Trigger.objects.all().delete()

        import_triggers(carried, by="cli:ada")

        assert content() == exported
        assert import_triggers(carried, by="cli:ada").changes == []
        transaction.set_rollback(True)


# The commands


@pytest.mark.django_db
def test_the_commands_carry_triggers_by_a_file(tmp_path: Path) -> None:
    make_triggers()
    exported, _, _ = run_command("export_triggers")
    path = tmp_path / "triggers.json"
    path.write_text(exported)
    empty_the_system()

    foreseen, _, _ = run_command("import_triggers", path, "--dry-run")
    assert foreseen.endswith("8 would change\n")
    out, err, well = run_command("import_triggers", path)
    assert (out.splitlines()[-1], well) == ("8 changed", True)
    assert "no secret yet" in err
    assert run_command("export_triggers")[0] == exported
    assert run_command("import_triggers", path)[0] == "nothing changed\n"


@pytest.mark.django_db
def test_the_commands_refuse_missing_files_and_unknown_slugs(tmp_path: Path) -> None:
    assert not run_command("export_triggers", "nobody")[2]
    assert not run_command("import_triggers", tmp_path / "nothing.json")[2]
    path = tmp_path / "triggers.json"
    path.write_text('{"format": "wakeful triggers", "format": "twice"}')
    assert not run_command("import_triggers", path)[2]

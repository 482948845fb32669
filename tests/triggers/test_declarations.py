import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from agents import AgentRun, Quiet, Report, agent, on, registry
from agents.exceptions import DeclarationError
from runs.models import AuditEntry
from tests.support.triggers import make_trigger
from triggers.declarations import wanted
from triggers.declarations.overrides import create_trigger, override, reset_overrides
from triggers.declarations.sync import sync
from triggers.exceptions import Invalid, RuleError
from triggers.models import Event, Schedule, Source, Trigger
from triggers.schedules import edit, preview, rows
from triggers.schedules.calendars import create_calendar
from triggers.schedules.firing import due_schedules
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.words import read_rule
from triggers.schedules.terms.policy import SchedulePolicy
from triggers.sources.edit import change_source
from triggers.tasks import fire_schedule

pytestmark = pytest.mark.django_db

HOURLY = Interval.parse("1h")
FUTURE = datetime(2050, 12, 1, 8, 0, tzinfo=UTC)
Declare = Callable[..., None]


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Declare:
    """Replace everything declared so far by one agent."""

    def declare(name: str, *triggers: Any, **fields: Any) -> None:
        monkeypatch.setattr(registry, "_agents", {})
        add(name, *triggers, **fields)

    return declare


def add(name: str, *triggers: Any, **fields: Any) -> None:
    @agent(name, triggers=triggers, **fields)
    def body(run: AgentRun) -> None: ...


def words_of(changes: list[Any]) -> list[str]:
    return [str(change) for change in changes]


def trigger_of(slug: str) -> Trigger:
    return Trigger.objects.get(slug=slug)


def task_of(slug: str) -> PeriodicTask:
    return PeriodicTask.objects.get(wakeful__trigger__slug=slug)


# What the code declares


def test_event_trigger_becomes_a_row(declare: Declare) -> None:
    declare("welcome", on.event("customer.created", source="shop", filter="event.data.vip"), timeout="30s", priority=2)

    assert words_of(sync()) == ["created welcome"]

    trigger = trigger_of("welcome")
    assert (trigger.agent, trigger.source, trigger.types) == ("welcome", "shop", ["customer.created"])
    assert (trigger.filter, trigger.overlap, trigger.key) == ("event.data.vip", "allow", "")
    assert trigger.policy == {"timeout": 30.0, "priority": 2}
    assert not PeriodicTask.objects.exists()


def test_a_key_implies_queue_unless_overlap_is_declared(declare: Declare) -> None:
    declare("a", on.event("x"), key="event.data.id")
    add("b", on.event("x"), key="event.data.id", overlap="skip")

    sync()

    assert (trigger_of("a").overlap, trigger_of("a").key) == ("queue", "event.data.id")
    assert trigger_of("b").overlap == "skip"


def test_a_gate_implies_queue_unless_overlap_is_declared(declare: Declare) -> None:
    declare("a", on.event("x"), gate=lambda run: Quiet("no"))
    add("b", on.event("x"), gate=lambda run: Quiet("no"), overlap="allow")

    sync()

    assert (trigger_of("a").overlap, trigger_of("b").overlap) == ("queue", "allow")


@pytest.mark.parametrize(
    ("declared", "row"),
    [
        (on.cron("0 9 * * mon-fri", tz="Europe/Vienna"), "0 9 * * mon-fri (m/h/dM/MY/d) Europe/Vienna"),
        (on.every("90m"), "every 90 minutes"),
        (on.at("2050-12-01T09:00+01:00"), "2050-12-01 08:00:00+00:00"),
    ],
)
def test_a_declared_schedule_becomes_a_periodic_task(declare: Declare, declared: Any, row: str) -> None:
    declare("digest", declared)

    sync()

    task = task_of("digest")
    assert str(task.scheduler) == row
    assert (task.task, json.loads(task.args), task.enabled) == ("triggers.fire_schedule", ["digest"], True)
    assert (trigger_of("digest").overlap, trigger_of("digest").types) == ("skip", [])


def test_further_triggers_are_numbered_and_a_slug_is_kept(declare: Declare) -> None:
    declare("Mail Room", on.event("a"), on.every("1h", catch_up="all"), on.event("c", slug="letters"))

    sync()

    assert set(Trigger.objects.values_list("slug", flat=True)) == {"mail-room", "mail-room-2", "letters"}
    assert task_of("mail-room-2").wakeful.catch_up == "all"


def test_a_second_sync_changes_nothing(declare: Declare) -> None:
    declare("digest", on.cron("0 9 * * 5-7"), on.every(0.5), on.at(FUTURE), on.event("x", filter="true"), timeout=5)
    sync()
    due_schedules.settle()

    assert sync() == []
    assert not Schedule.objects.filter(stale=True).exists()
    assert all(trigger.overrides == [] for trigger in Trigger.objects.all())


def test_changed_declaration_changes_its_rows(declare: Declare) -> None:
    declare("digest", on.cron("0 9 * * *"))
    sync()
    declare("digest", on.cron("30 9 * * *", catch_up="all"), retries=5)

    assert words_of(sync()) == ["changed digest (policy, At 09:30 (UTC), catch_up)"]

    assert task_of("digest").crontab.minute == "30"
    assert task_of("digest").wakeful.catch_up == "all"
    assert trigger_of("digest").policy == {"retries": 5}


def test_rule_that_others_share_is_not_edited(declare: Declare) -> None:
    declare("digest", on.cron("0 9 * * *"))
    add("other", on.cron("0 9 * * *"))
    sync()
    assert CrontabSchedule.objects.count() == 1
    declare("digest", on.cron("30 9 * * *"))
    add("other", on.cron("0 9 * * *"))

    sync()

    assert task_of("other").crontab.minute == "0"


def test_trigger_may_turn_from_schedule_to_event_and_back(declare: Declare) -> None:
    declare("digest", on.every("1h"))
    sync()
    declare("digest", on.event("x"))
    assert words_of(sync()) == ["changed digest (types, overlap, no schedule any more)"]
    assert not PeriodicTask.objects.exists()
    declare("digest", on.every("1h"))

    sync()

    assert task_of("digest").enabled


def test_instant_that_is_past_when_first_seen_does_not_fire(declare: Declare) -> None:
    declare("reminder", on.at("2001-01-01T00:00Z"))

    assert words_of(sync()) == ["created reminder (once, at 2001-01-01 00:00:00 UTC: past, so it will not fire)"]
    assert not task_of("reminder").enabled


# What makes no sense


@pytest.mark.parametrize(
    ("trigger", "fields", "complaint"),
    [
        (on.cron("0 25 * * *"), {}, "agent 'bad': hour 25 is not between 0 and 23"),
        (on.cron("0 9 * * *", tz="Europe/Wien"), {}, "there is no zone 'Europe/Wien'"),
        (on.every(0.001), {}, "not between 0.1 s and 100 years"),
        (on.event("x", filter="event.data. >"), {}, "agent 'bad': "),
        (on.event("x", filter="evnt.data.id == 1"), {}, "at 'evnt': is unknown"),
        (on.event("x"), {"key": "id"}, "at 'id': is unknown"),
        (on.event("x"), {"input": {"id": "event.data.id +"}}, "agent 'bad': "),
        (on.event(), {}, "needs a type"),
        (on.event("x", slug="Not A Slug"), {}, "use 'not-a-slug'"),
    ],
)
def test_nonsense_is_refused_before_anything_is_written(
    declare: Declare, trigger: Any, fields: dict[str, Any], complaint: str
) -> None:
    declare("bad", trigger, **fields)
    add("good", on.event("x"))

    with pytest.raises(DeclarationError, match=complaint):
        sync()

    assert not Trigger.objects.exists()


def test_every_problem_is_listed_at_once(declare: Declare) -> None:
    declare("one", on.cron("0 25 * * *"), on.cron("0 9 * * *", tz="Mars"))
    add("two", on.event("x", slug="same"), on.event("y", slug="same"))

    with pytest.raises(CommandError) as raised:
        call_command("sync_agents")

    lines = str(raised.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "Nothing was changed.",
        "agent 'one'",
        "agent 'one'",
        "2 triggers have the slug 'same' of two; give one of them another slug=",
    ]


def test_operators_trigger_of_the_same_slug_is_not_taken(declare: Declare) -> None:
    make_trigger("digest")
    declare("digest", on.event("x"))

    with pytest.raises(DeclarationError, match="trigger 'digest' was created by an operator"):
        sync()


def test_an_unrelated_periodic_task_of_the_same_name_is_not_taken(declare: Declare) -> None:
    crontab = CrontabSchedule.objects.create()
    PeriodicTask.objects.create(name="digest", task="shop.tasks.digest", crontab=crontab)
    declare("digest", on.every("1h"))

    with pytest.raises(DeclarationError, match="another schedule is named 'digest'"):
        sync()


def test_command_prints_the_changes(declare: Declare) -> None:
    declare("digest", on.every("1h"))
    first, second = StringIO(), StringIO()

    call_command("sync_agents", stdout=first)
    call_command("sync_agents", stdout=second)

    assert first.getvalue() == "created digest (every 1 hour)\n"
    assert second.getvalue() == "nothing changed\n"


# What an operator sets


def test_a_trigger_has_the_reports_of_its_agent_or_its_own(declare: Declare) -> None:
    own = on.event("b").reporting(Report(on="failure", notify="ops"))
    declare("watch", on.event("a"), own, on.every("1h").reporting(), report=Report(event=True))

    sync()

    assert [trigger_of(slug).policy.get("reports") for slug in ("watch", "watch-2", "watch-3")] == [
        [{"on": "end", "event": True}],
        [{"on": "failure", "notify": ["ops"]}],
        [],
    ]
    assert [str(change) for change in sync()] == []


def test_a_wrong_report_is_refused_where_it_is_declared(declare: Declare) -> None:
    with pytest.raises(DeclarationError, match="reports must be a list of at most 10 reports"):
        declare("watch", on.event("a"), report=[Report(event=True)] * 11)
    with pytest.raises(ValueError, match="it goes nowhere; give notify, webhooks, event or reply"):
        Report()
    with pytest.raises(Invalid, match="unknown fields pager"):
        override(make_trigger(), {"policy": {"reports": [{"on": "end", "pager": True}]}}, by="ada")


def test_override_survives_a_deploy(declare: Declare) -> None:
    declare("welcome", on.event("customer.created"))
    sync()
    override(trigger_of("welcome"), {"filter": "event.data.vip", "policy": {"retries": 9}}, by="admin:ada")
    declare("welcome", on.event("customer.created", "customer.changed", filter="event.data.new"), retries=1)

    assert words_of(sync()) == ["changed welcome (types)"]

    trigger = trigger_of("welcome")
    assert trigger.types == ["customer.created", "customer.changed"]
    assert (trigger.filter, trigger.policy) == ("event.data.vip", {"retries": 9})
    assert AuditEntry.objects.filter(by="admin:ada", action="override").exists()


def test_edit_that_came_another_way_is_taken_for_an_override(declare: Declare) -> None:
    declare("digest", on.cron("0 9 * * *"))
    sync()
    Trigger.objects.update(overlap="allow")
    PeriodicTask.objects.update(crontab=CrontabSchedule.objects.create(hour="7", minute="0"))
    declare("digest", on.cron("0 10 * * *"), overlap="queue", retries=1)

    sync()

    assert trigger_of("digest").overrides == ["overlap", "rule"]
    assert (trigger_of("digest").overlap, task_of("digest").crontab.hour) == ("allow", "7")
    assert trigger_of("digest").policy == {"retries": 1}


def test_edited_schedule_survives_a_deploy_until_it_is_given_back(declare: Declare) -> None:
    declare("digest", on.cron("0 9 * * *"))
    sync()
    edit.edit_schedule(
        task_of("digest").wakeful, rule=Interval.parse("20m"), policy=SchedulePolicy(catch_up="skip"), by="admin:ada"
    )
    declare("digest", on.cron("0 10 * * *", catch_up="all"))

    sync()
    assert (str(task_of("digest").interval), task_of("digest").wakeful.catch_up) == ("every 20 minutes", "skip")

    reset_overrides(trigger_of("digest"), ["rule", "catch_up"], by="admin:ada")
    assert (task_of("digest").crontab.hour, task_of("digest").wakeful.catch_up) == ("10", "all")
    assert sync() == []


def test_a_trigger_that_no_code_declares_is_not_reset(declare: Declare) -> None:
    declare("digest")
    trigger = create_trigger("by-hand", agent="digest", by="ada")

    with pytest.raises(Invalid, match="no code declares this trigger"):
        reset_overrides(trigger, ["filter"], by="ada")


def test_policy_of_the_code_reaches_the_row_and_an_edited_field_is_the_operators(declare: Declare) -> None:
    create_calendar(slug="holidays", days="*-12-25 Christmas", by="ada")
    declare(
        "digest",
        on.cron("0 9 * * *", jitter="5m", active_hours="Mon-Fri 8:00-20:00", exclude=["holidays"], max_fires=9),
    )
    sync()
    schedule = task_of("digest").wakeful
    policy = SchedulePolicy.of(schedule)
    assert policy == SchedulePolicy(
        jitter=timedelta(minutes=5), active_hours="mon-fri 08:00-20:00", exclude=("holidays",), max_fires=9
    )
    assert sync() == []

    edit.edit_schedule(schedule, policy=SchedulePolicy.parse({"jitter": "1m", "exclude": ""}, policy), by="ada")
    Schedule.objects.update(max_fires=3)
    declare("digest", on.cron("0 9 * * *", jitter="10m", spread="2m", exclude=["holidays"]))
    assert words_of(sync()) == ["changed digest (spread, active_hours)"]

    assert trigger_of("digest").overrides == ["exclude", "jitter", "max_fires"]
    assert SchedulePolicy.of(task_of("digest").wakeful) == SchedulePolicy(
        jitter=timedelta(minutes=1), spread=timedelta(minutes=2), max_fires=3
    )
    reset_overrides(trigger_of("digest"), ["exclude", "jitter", "max_fires"], by="ada")
    assert SchedulePolicy.of(task_of("digest").wakeful) == SchedulePolicy(
        jitter=timedelta(minutes=10), spread=timedelta(minutes=2), exclude=("holidays",)
    )


def test_calendar_that_is_not_there_stops_the_sync_before_it_writes(declare: Declare) -> None:
    declare("digest", on.cron("0 9 * * *", exclude=["holidays"]))

    with pytest.raises(DeclarationError, match="schedule 'digest': there is no calendar 'holidays'.*create it first"):
        sync()

    assert not Trigger.objects.exists()


def test_words_that_count_from_now_count_from_the_first_sync(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    def sync_at(now: datetime) -> None:
        monkeypatch.setattr(wanted, "read_rule", partial(read_rule, now=now))
        sync()

    declare("digest", on.schedule("in 20 minutes"))
    sync_at(FUTURE)
    sync_at(FUTURE + timedelta(hours=1))
    assert task_of("digest").clocked.clocked_time == FUTURE + timedelta(minutes=20)

    declare("digest", on.schedule("in 30 minutes"))
    sync_at(FUTURE + timedelta(hours=2))

    assert task_of("digest").clocked.clocked_time == FUTURE + timedelta(hours=2, minutes=30)


def test_a_heartbeat_implies_queue_one_unless_overlap_is_declared(declare: Declare) -> None:
    declare("watch", on.heartbeat("30m", pace=("5m", "4h"), active_hours="08:00-20:00", tz="Europe/Vienna"))
    add("other", on.heartbeat("30m"), overlap="skip")

    sync()

    schedule = task_of("watch").wakeful
    assert (schedule.kind, schedule.pace_min, schedule.active_zone) == (
        "heartbeat",
        timedelta(minutes=5),
        "Europe/Vienna",
    )
    assert (trigger_of("watch").overlap, trigger_of("other").overlap) == ("queue_one", "skip")


def test_override_that_makes_no_sense_is_refused(declare: Declare) -> None:
    trigger = make_trigger()

    for changes in ({"filter": "event."}, {"overlap": "perhaps"}, {"slug": "other"}, {"key": "nobody.id"}):
        with pytest.raises(ValueError):
            override(trigger, changes, by="admin:ada")


def test_operator_may_disable_a_declared_trigger_for_good(declare: Declare) -> None:
    declare("digest", on.every("1h"))
    sync()
    override(trigger_of("digest"), {"enabled": False}, by="admin:ada")
    declare("digest", on.every("2h"))

    sync()

    assert not trigger_of("digest").enabled


# Coming and going


def test_vanished_declaration_disables_and_its_return_enables(declare: Declare) -> None:
    declare("digest", on.every("1h"))
    sync()
    declare("other", on.event("x"))

    assert words_of(sync()) == ["created other", "disabled digest (its declaration is gone)"]
    assert (trigger_of("digest").enabled, task_of("digest").enabled) == (False, False)
    assert sync() == []

    add("digest", on.every("1h"))
    assert words_of(sync()) == ["enabled again digest"]
    assert (trigger_of("digest").enabled, task_of("digest").enabled) == (True, True)
    assert sync() == []


def test_a_trigger_disabled_by_an_operator_stays_disabled_when_it_returns(declare: Declare) -> None:
    declare("digest", on.every("1h"))
    sync()
    edit.pause_schedule(task_of("digest").wakeful, by="admin:ada")
    declare("other", on.event("x"))
    sync()
    add("digest", on.every("1h"))

    sync()

    assert (trigger_of("digest").enabled, task_of("digest").enabled) == (True, False)


def test_operators_own_triggers_and_schedules_are_left_alone(declare: Declare) -> None:
    make_trigger("mine")
    declare("digest", on.event("x"))
    sync()
    edit.create_schedule(name="extra", trigger=trigger_of("digest"), rule=HOURLY, by="admin:ada")

    assert sync() == []
    assert trigger_of("mine").enabled
    assert task_of("digest").name == "extra"


# What a person does to a schedule


def test_schedule_for_an_agent_makes_its_trigger(declare: Declare) -> None:
    declare("digest", retries=1)

    schedule = edit.create_schedule(
        name="Morning digest", agent="digest", rule=Cron.parse("0 9 * * mon-fri", "Europe/Vienna"), by="admin:ada"
    )

    trigger = trigger_of("morning-digest")
    assert (schedule.trigger, trigger.agent, trigger.declared) == (trigger, "digest", None)
    assert (trigger.overlap, trigger.policy) == ("skip", {"retries": 1})
    assert preview.describe(schedule) == "At 09:00, Monday through Friday (Europe/Vienna)"
    assert AuditEntry.objects.get().action == "create"


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"agent": "nobody"}, "agent: no agent 'nobody' is installed; use one of: digest"),
        ({"rule": Clocked.parse("2001-01-01T00:00Z")}, "when: once, at 2001-01-01 00:00:00 UTC: that is past"),
        ({"name": "taken"}, "name: .*'taken' already"),
        ({"name": " "}, "name: .*1 to 200 characters"),
        ({"name": "!!!"}, "name: .*empty or taken"),
        ({"policy": SchedulePolicy(catch_up_max=3)}, "catch_up_max: .*choose catch_up all"),
        (
            {"policy": SchedulePolicy(exclude=("nowhere",))},
            "exclude: there is no calendar 'nowhere'; the calendars are: none yet",
        ),
        (
            {
                "policy": SchedulePolicy(start=FUTURE, end=FUTURE + timedelta(minutes=1)),
                "rule": Cron.parse("0 9 * * *"),
            },
            "end: .*no time between",
        ),
        (
            {"policy": SchedulePolicy(active_hours="10:00-11:00"), "rule": Cron.parse("0 9 * * *")},
            "active_hours: .*10:00-11:00",
        ),
    ],
)
def test_schedule_that_makes_no_sense_is_refused(declare: Declare, wrong: dict[str, Any], complaint: str) -> None:
    declare("digest")
    edit.create_schedule(name="taken", agent="digest", rule=HOURLY, by="admin:ada")

    with pytest.raises(RuleError) as refused:
        edit.create_schedule(**{"name": "new", "agent": "digest", "rule": HOURLY, "by": "admin:ada", **wrong})

    assert re.match(complaint, f"{refused.value.field}: {refused.value}")
    assert Trigger.objects.count() == Schedule.objects.count() == 1


def test_under_another_scheduler_the_task_still_wakes_its_trigger(declare: Declare) -> None:
    declare("digest", on.every("1h"))
    sync()

    event_id = fire_schedule(*json.loads(task_of("digest").args))

    event = Event.objects.get(pk=event_id)
    assert (event.type, event.target_id) == ("manual.fired", trigger_of("digest").id)


def test_a_schedule_that_a_run_has_set_is_never_taken_for_the_declared_one(declare: Declare) -> None:
    declare("digest", on.event("digest.wanted"))
    sync()
    rows.add_schedule(trigger_of("digest"), name="digest/nightly", rule=Interval.parse("1d"))
    declare("digest", on.every("5m"))
    sync()

    declare("digest", on.every("10m"))
    sync()

    assert {str(task.name): str(task.interval) for task in PeriodicTask.objects.all()} == {
        "digest": "every 10 minutes",
        "digest/nightly": "every day",
    }
    assert trigger_of("digest").overrides == []


# Sources


FEED = {"url": "https://example.com/feed"}


def feed(**settings: Any) -> on.SourceTrigger:
    return on.SourceTrigger(types=("item.published",), kind="feed", settings=FEED | settings)


def source_of(slug: str) -> Source:
    return Source.objects.get(slug=slug)


def test_a_declared_source_is_made_with_its_trigger(declare: Declare) -> None:
    declare("reader", feed())

    assert words_of(sync()) == ["created reader", "created source reader"]

    assert trigger_of("reader").source == "reader"
    source = source_of("reader")
    assert (source.kind, source.enabled, source.settings["url"]) == ("feed", True, FEED["url"])
    assert words_of(sync()) == []


def test_a_setting_of_a_declared_source_that_an_operator_has_changed_stays(declare: Declare) -> None:
    declare("reader", feed())
    sync()
    source = source_of("reader")
    change_source(source, {"settings": {**source.settings, "every": "1h"}}, by="eve")
    declare("reader", feed(url="https://example.com/other"))

    assert words_of(sync()) == ["changed source reader"]

    settings = source_of("reader").settings
    assert (settings["every"], settings["url"]) == ("1h", "https://example.com/other")


def test_a_source_whose_declaration_is_gone_is_disabled_until_it_returns(declare: Declare) -> None:
    declare("reader", feed())
    sync()
    declare("reader", on.event("other"))

    assert "disabled, because its declaration is gone source reader" in words_of(sync())
    assert not source_of("reader").enabled
    assert words_of(sync()) == []

    declare("reader", feed())
    assert "enabled again source reader" in words_of(sync())
    assert source_of("reader").enabled


def test_a_declared_source_takes_no_source_of_an_operator(declare: Declare) -> None:
    Source.objects.create(slug="reader", kind="feed", settings=FEED)
    declare("reader", feed())

    with pytest.raises(DeclarationError, match="another source is named 'reader'"):
        sync()
    assert not Trigger.objects.exists()


def test_wrong_settings_of_a_declared_source_are_named(declare: Declare) -> None:
    declare("reader", feed(url="nowhere"))
    with pytest.raises(DeclarationError, match="agent 'reader'.*url"):
        sync()


def test_a_watched_directory_is_declared_in_code(declare: Declare, settings: Any) -> None:
    settings.WAKEFUL_FILE_ROOTS = ["/data"]
    declare("importer", on.file("/data/in", "*.csv", changes=["created"], existing=True, settle="1m", marker=".done"))

    sync()

    trigger, source = trigger_of("importer"), source_of("importer")
    assert (trigger.source, trigger.types) == ("importer", ["file.created"])
    wanted = {"directory": "/data/in", "patterns": "*.csv", "begin_with": "all", "settle": "60s", "marker": ".done"}
    assert (source.kind, {name: source.settings[name] for name in wanted}) == ("directory", wanted)
    declare("importer", on.file("/elsewhere"))
    with pytest.raises(DeclarationError, match="WAKEFUL_FILE_ROOTS"):
        sync()
    with pytest.raises(ValueError, match="unknown change 'moved'"):
        on.file("/data/in", changes=["moved"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="'settled'"):
        on.file("/data/in", settled="1m")  # type: ignore[call-arg]

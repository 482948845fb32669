"""Jobs of a crontab, of django-celery-beat and of Healthchecks become schedules and switches."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.management import CommandError, call_command
from django.core.serializers import serialize
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule

from agents import AgentRun, agent, registry
from runs.models import AuditEntry
from tests.runs.test_commands import run_command
from triggers.declarations.overrides import override
from triggers.models import Event, Schedule, Source, Trigger
from triggers.schedules.edit import edit_schedule, pause_schedule, resume_schedule
from triggers.schedules.firing import due_schedules
from triggers.schedules.terms.policy import SchedulePolicy
from triggers.sources.secrets import keys_in_use
from triggers.transfer.foreign.read import read

pytestmark = pytest.mark.django_db

CRONTAB = r"""
SHELL=/bin/bash
MAILTO="ops@example.com"
DB_PASSWORD=hunter2
# Counts the tickets
# that wait.
*/30 * * * *  /srv/desk/count-tickets --open

@daily    date +\%F
CRON_TZ=Europe/Vienna
0 9 1,15 * fri  mail ops%Good morning%
@reboot   /srv/warm-up
"""
SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_agents", {})

    @agent("job")
    def body(run: AgentRun) -> None: ...


def imported(tmp_path: Path, program: str, content: Any, *options: str, agent: str = "job") -> dict[str, Any]:
    """The report of an import."""
    file = tmp_path / "jobs"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    named = ("--agent", agent) if agent else ()
    out, err, well = run_command("import_from", program, str(file), *named, *options, "--json")
    report: dict[str, Any] = json.loads(out)
    assert well, report
    return report


def refusal(tmp_path: Path, program: str, content: Any, *options: str, agent: str = "job") -> str:
    file = tmp_path / "jobs"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(CommandError) as refused:
        call_command("import_from", program, str(file), "--agent", agent, *options)
    assert not PeriodicTask.objects.filter(wakeful__trigger__agent="job").exists()
    return str(refused.value)


def rules() -> dict[str, tuple[str, str]]:
    rows = PeriodicTask.objects.filter(wakeful__trigger__agent="job").select_related("crontab")
    return {
        re.sub(r"-[0-9a-f]{6}(?=-\d+$|$)", "", row.name): (
            f"{row.crontab.minute} {row.crontab.hour} {row.crontab.day_of_month} {row.crontab.month_of_year} {row.crontab.day_of_week}",
            str(row.crontab.timezone),
        )
        for row in rows
    }


def jobs_of(crontab: str) -> dict[str, Any]:
    """The data of each schedule, as the file is read."""
    schedules = read("crontab", crontab.encode(), crontab="web", agent="").schedules
    return {"-".join(one["name"].split("-")[:2]): one["data"] for one in schedules}


def data_of(name: str) -> Any:
    return Schedule.objects.filter(task__name__startswith=name)[0].data


def fired() -> list[tuple[Any, datetime]]:
    """The data of each event that Beat has recorded, and its nominal time."""
    return [(event.data, event.time) for event in Event.objects.filter(type="schedule.fired") if event.time]


# A crontab


def test_each_line_of_a_crontab_becomes_a_paused_schedule_with_a_trigger_of_its_own(tmp_path: Path) -> None:
    imported(tmp_path, "crontab", CRONTAB, "--tz", "America/Lima")

    assert rules() == {
        "srv-desk-count-tickets-open": ("*/30 * * * *", "America/Lima"),
        "date-F": ("0 0 * * *", "America/Lima"),
        "mail-ops": ("0 9 1,15 * *", "Europe/Vienna"),
        "mail-ops-2": ("0 9 * * fri", "Europe/Vienna"),
    }
    assert not PeriodicTask.objects.filter(wakeful__trigger__agent="job", enabled=True).exists()
    assert Trigger.objects.filter(agent="job", overlap="skip").count() == 4


def test_the_event_has_the_command_as_cron_would_run_it() -> None:
    jobs = jobs_of(CRONTAB)

    same = {"crontab": "web", "env": {"SHELL": "/bin/bash"}}
    assert jobs["srv-desk"] == same | {
        "command": "/srv/desk/count-tickets --open", "description": "Counts the tickets that wait.",
    }  # fmt: skip
    assert jobs["date-F"] == same | {"command": "date +%F"}
    assert jobs["mail-ops"] == same | {"command": "mail ops", "stdin": "Good morning\n"}


def test_the_report_names_what_is_left_out_and_what_changes(tmp_path: Path) -> None:
    report = imported(tmp_path, "crontab", CRONTAB, "--dry-run", agent="")

    left = [entry for entry in report["entries"] if not entry["becomes"]]
    assert [(entry["where"], entry["what"]) for entry in left] == [("line 12", "@reboot   /srv/warm-up")]
    said = "\n".join([*report["notes"], *(note for entry in report["entries"] for note in entry["notes"])])
    assert "MAILTO=ops@example.com" in said and "DB_PASSWORD is left out" in said and "two schedules" in said
    assert "hunter2" not in json.dumps(report)


def test_a_second_import_makes_no_second_schedule_and_leaves_on_and_paused_as_they_are(tmp_path: Path) -> None:
    imported(tmp_path, "crontab", CRONTAB)
    resumed = Schedule.objects.get(task__name__startswith="srv-desk")
    resume_schedule(resumed, by="test")

    again = imported(tmp_path, "crontab", CRONTAB)
    later = imported(tmp_path, "crontab", CRONTAB.replace("*/30", "*/10"))

    assert again["changes"] == []
    assert [list(change["fields"]) for change in later["changes"]] == [["rule"]]
    assert rules()["srv-desk-count-tickets-open"][0] == "*/10 * * * *"
    assert PeriodicTask.objects.filter(wakeful__trigger__agent="job", enabled=True).get().pk == resumed.task_id


def test_a_dry_run_and_one_without_an_agent_change_nothing(tmp_path: Path) -> None:
    before = AuditEntry.objects.count()

    tried = imported(tmp_path, "crontab", CRONTAB, "--dry-run")
    looked = imported(tmp_path, "crontab", CRONTAB, "--dry-run", agent="")
    refused = run_command("import_from", "crontab", str(tmp_path / "jobs"))

    assert len(tried["changes"]) == 8 and looked["changes"] == []
    assert len(looked["entries"]) == len(tried["entries"]) == 4
    assert refused[2] is False and "→ schedule" in refused[0]
    assert (AuditEntry.objects.count(), Trigger.objects.filter(agent="job").count()) == (before, 0)


def test_a_wrong_line_is_named_with_its_fix_and_nothing_is_changed(tmp_path: Path) -> None:
    said = refusal(tmp_path, "crontab", "0 9 * * *  ok\n61 * * * *  a\n@never b\n* * *\n0 0 31 2 *  c\n")

    assert said.splitlines()[0] == "Nothing was changed."
    assert [line.partition(":")[0] for line in said.splitlines()[1:]] == ["line 2", "line 3", "line 4", "line 5"]
    assert "minute 61 is not between 0 and 59" in said and "@hourly" in said and "five fields" in said


def test_an_agent_that_is_not_installed_is_named(tmp_path: Path) -> None:
    assert "no agent 'nosuch' is installed" in refusal(tmp_path, "crontab", CRONTAB, agent="nosuch")


def test_a_crontab_of_the_system_names_users(tmp_path: Path) -> None:
    imported(tmp_path, "crontab", "17 * * * *  root  cd / && run-parts /etc/cron.hourly\n", "--system")

    assert data_of("cd") == {"crontab": "jobs", "command": "cd / && run-parts /etc/cron.hourly", "user": "root"}


def test_what_fell_due_since_cron_was_stopped_fires_once(tmp_path: Path) -> None:
    imported(tmp_path, "crontab", "* * * * *  tick\n", "--on", "--since", "10m")

    settled()

    [(data, nominal)] = fired()
    assert data["data"] == {"crontab": "jobs", "command": "tick"}
    assert datetime.now(UTC) - nominal < timedelta(minutes=2)


def test_since_needs_a_time_that_is_past_and_schedules_that_are_on(tmp_path: Path) -> None:
    assert "--since" in refusal(tmp_path, "crontab", CRONTAB, "--since", "10m")
    assert "--since" in refusal(tmp_path, "crontab", CRONTAB, "--on", "--since", "2099-01-01")


# A crontab that is edited and imported again


def active() -> list[tuple[str, str]]:
    """Command and rule of each schedule that fires."""
    rows = PeriodicTask.objects.filter(wakeful__trigger__agent="job", enabled=True)
    found = [(row.wakeful.data["command"], row.crontab) for row in rows.select_related("crontab", "wakeful")]
    return sorted(
        (command, f"{rule.minute} {rule.hour} {rule.day_of_month} {rule.day_of_week}") for command, rule in found
    )


def test_a_line_whose_days_change_fires_at_its_new_times_alone(tmp_path: Path) -> None:
    imported(tmp_path, "crontab", "0 9 * * *  mail\n", "--on")

    either = imported(tmp_path, "crontab", "0 9 1 * fri  mail\n", "--on")
    assert active() == [("mail", "0 9 * fri"), ("mail", "0 9 1 *")]
    [line] = either["entries"]
    assert set(re.findall(r"schedule (\S+):", line["becomes"])) == set(
        PeriodicTask.objects.values_list("name", flat=True)
    )

    back = imported(tmp_path, "crontab", "30 9 * * fri  mail\n")
    assert active() == [("mail", "30 9 * fri")]
    [note] = [note for note in back["notes"] if "no longer in the crontab" in note]
    assert note.startswith(f"schedule {PeriodicTask.objects.get(enabled=False).name} is paused")
    assert {"enabled": [True, False]} in [change["fields"] for change in back["changes"]]


def test_of_two_lines_with_one_command_the_one_that_is_left_keeps_its_schedule(tmp_path: Path) -> None:
    imported(tmp_path, "crontab", "0 9 * * *  mail\n0 18 * * *  mail\n", "--on")
    evening = PeriodicTask.objects.get(crontab__hour="18")

    imported(tmp_path, "crontab", "0 18 * * *  mail\n")
    assert active() == [("mail", "0 18 * *")]
    assert PeriodicTask.objects.get(enabled=True) == evening

    imported(tmp_path, "crontab", "0 7 * * *  mail\n0 8 * * *  mail\n0 18 * * *  mail\n", "--on")
    assert active() == [("mail", "0 18 * *"), ("mail", "0 7 * *"), ("mail", "0 8 * *")]
    assert PeriodicTask.objects.get(crontab__hour="18") == evening
    assert PeriodicTask.objects.filter(wakeful__trigger__agent="job").count() == 3


def test_a_line_with_another_command_is_another_job_and_the_schedule_of_the_old_one_is_paused(tmp_path: Path) -> None:
    imported(tmp_path, "crontab", "0 9 * * *  mail\n0 9 * * *  count\n", "--on")

    imported(tmp_path, "crontab", "0 9 * * *  mail --all\n", "--on", "--crontab", "jobs")
    assert active() == [("mail --all", "0 9 * *")]

    imported(tmp_path, "crontab", "0 9 * * *  mail\n0 9 * * *  mail --all\n")
    assert active() == [("mail --all", "0 9 * *")]

    imported(tmp_path, "crontab", "0 9 * * *  mail\n0 9 * * *  mail --all\n", "--on")
    assert active() == [("mail", "0 9 * *"), ("mail --all", "0 9 * *")]


def test_a_person_s_pause_of_a_schedule_whose_line_is_gone_stays(tmp_path: Path) -> None:
    imported(tmp_path, "crontab", "0 9 * * *  mail\n0 9 * * *  count\n", "--on")
    pause_schedule(Schedule.objects.get(task__name__startswith="mail"), by="test", note="no mail in May")

    gone = imported(tmp_path, "crontab", "0 9 * * *  count\n", "--on")
    imported(tmp_path, "crontab", "0 9 * * *  mail\n0 9 * * *  count\n", "--on")

    assert gone["changes"] == [] and "is paused, and its line is no longer" in " ".join(gone["notes"])
    assert active() == [("count", "0 9 * *")]


def test_what_a_person_changed_in_the_trigger_of_a_line_stays(tmp_path: Path) -> None:
    imported(tmp_path, "crontab", "0 9 * * *  mail\n", "--on")
    override(Trigger.objects.get(agent="job"), {"overlap": "allow"}, by="test")

    again = imported(tmp_path, "crontab", "0 10 * * *  mail\n", "--on")

    assert [list(change["fields"]) for change in again["changes"]] == [["rule"]]
    assert Trigger.objects.get(agent="job").overlap == "allow"


def test_crontabs_of_two_machines_are_kept_apart_by_name_and_a_guess_that_may_be_wrong_is_refused(
    tmp_path: Path,
) -> None:
    imported(tmp_path, "crontab", "0 9 * * *  mail\n", "--on")
    imported(tmp_path, "crontab", "0 10 * * *  mail\n", "--on", "--crontab", "berta")
    imported(tmp_path, "crontab", "0 11 * * *  count\n", "--on", "--crontab", "berta")
    file = tmp_path / "jobs"

    for text, names in (("0 9 * * *  other\n", ["jobs"]), ("0 9 * * *  mail\n0 9 * * *  count\n", ["berta", "jobs"])):
        file.write_text(text)
        with pytest.raises(CommandError, match="Nothing was changed") as refused:
            call_command("import_from", "crontab", str(file), "--agent", "job", "--on")
        assert all(f"--crontab {name}" in str(refused.value) for name in names)
    assert active() == [("count", "0 11 * *"), ("mail", "0 9 * *")]


def settled() -> None:
    """What Beat does now."""
    now = datetime.now(UTC) + SECOND
    due_schedules.settle(now)
    while due_schedules.fire_due(now):
        pass


# django-celery-beat


def without_zones(dump: str, zone: str) -> str:
    """The dump as a project with USE_TZ = False writes it."""

    def naive(value: Any) -> Any:
        try:
            return datetime.fromisoformat(value).astimezone(ZoneInfo(zone)).replace(tzinfo=None).isoformat()
        except (TypeError, ValueError):
            return value

    rows = json.loads(dump)
    return json.dumps(
        [{**row, "fields": {name: naive(value) for name, value in row["fields"].items()}} for row in rows]
    )


def test_times_without_an_offset_are_refused_until_their_zone_is_named(tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    end = now + timedelta(days=9)
    whole = dumped(clean={"last_run_at": now - timedelta(minutes=20), "expires": end}, party={"by": "clocked"})
    file = without_zones(whole, "Asia/Tokyo")

    said = refusal(tmp_path, "beat", file, "--on")
    assert "USE_TZ" in said and "--tz" in said and "task 1 (clean)" in said and "task 2 (party)" in said
    assert "is in the future" in refusal(tmp_path, "beat", file, "--on", "--tz", "America/Lima")

    imported(tmp_path, "beat", file, "--on", "--tz", "Asia/Tokyo")
    settled()
    by_name = {one.task.name: one for one in Schedule.objects.filter(trigger__agent="job").select_related("task")}
    assert by_name["clean"].next_fire_at == now + timedelta(minutes=10)
    assert by_name["clean"].task.expires == end
    assert by_name["party"].task.clocked.clocked_time == datetime(2050, 1, 1, 8, tzinfo=UTC)


def test_last_runs_that_a_beat_wrote_in_utc_have_a_zone_of_their_own(tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    file = without_zones(dumped(clean={"last_run_at": now - timedelta(minutes=20)}), "UTC")

    imported(tmp_path, "beat", file, "--on", "--tz", "Asia/Tokyo", "--last-run-tz", "UTC")
    settled()

    assert Schedule.objects.get(task__name="clean").next_fire_at == now + timedelta(minutes=10)


def test_what_a_beat_fired_before_it_was_killed_and_had_not_written_is_not_fired_again(tmp_path: Path) -> None:
    file = dumped(clean={"last_run_at": datetime.now(UTC) - timedelta(minutes=31)})

    imported(tmp_path, "beat", file, "--on", "--since", "10s")
    settled()

    assert fired() == []


def dumped(**tasks: dict[str, Any]) -> str:
    """`manage.py dumpdata django_celery_beat` of another project, which has these tasks."""
    rules: dict[str, Any] = {
        "crontab": CrontabSchedule(
            pk=7, minute="0", hour="3", day_of_month="29", month_of_year="2", timezone="Europe/Vienna"
        ),
        "interval": IntervalSchedule(pk=7, every=30, period="minutes"),
        "solar": SolarSchedule(pk=7, event="sunset", latitude="48.2", longitude="16.37"),
        "clocked": ClockedSchedule(pk=7, clocked_time=datetime(2050, 1, 1, 8, tzinfo=UTC)),
    }
    made = []
    for pk, (name, given) in enumerate(tasks.items(), 1):
        fields = {"task": f"shop.{name}", "date_changed": datetime.now(UTC), **given}
        by = fields.pop("by", "interval")
        made.append(PeriodicTask(pk=pk, name=name, **{f"{by}_id": rules[by].pk}, **fields))
    return str(serialize("json", [*rules.values(), *made]))


def test_periodic_tasks_become_schedules_that_wake_the_agent_with_the_call(tmp_path: Path) -> None:
    start = datetime(2040, 2, 25, tzinfo=UTC)
    file = dumped(
        clean={"args": "[1]", "kwargs": '{"a": 2}', "queue": "slow", "description": "Cleans."},
        report={"by": "crontab", "start_time": start, "expires": start + timedelta(days=9)},
        lamp={"by": "solar", "enabled": False},
        party={"by": "clocked", "one_off": True},
        once={"by": "crontab", "one_off": True},
    )

    imported(tmp_path, "beat", file, "--on")

    by_name = {one.task.name: one for one in Schedule.objects.filter(trigger__agent="job").select_related("task")}
    assert by_name["clean"].data == {
        "task": "shop.clean", "args": [1], "kwargs": {"a": 2}, "queue": "slow", "description": "Cleans.",
    }  # fmt: skip
    assert (by_name["report"].task.start_time, by_name["report"].task.expires) == (start, start + timedelta(days=9))
    assert (by_name["lamp"].task.enabled, by_name["lamp"].task.solar.event) == (False, "sunset")
    assert by_name["party"].task.clocked.clocked_time.year == 2050
    assert by_name["once"].max_fires == 1
    assert sorted(name for name, one in by_name.items() if one.task.enabled) == ["clean", "once", "party", "report"]


def test_at_the_switch_over_nothing_fires_twice_and_nothing_is_missed(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    file = dumped(
        late={"last_run_at": now - timedelta(minutes=100)},  # three times due since
        just={"last_run_at": now - timedelta(minutes=10)},
        crons={"by": "crontab", "last_run_at": now - SECOND},
    )

    imported(tmp_path, "beat", file, "--on")
    settled()

    [(data, nominal)] = fired()
    assert data["schedule"] == "late" and abs(nominal - (now - timedelta(minutes=10))) < SECOND
    just = Schedule.objects.get(task__name="just")
    assert just.next_fire_at is not None and abs(just.next_fire_at - (now + timedelta(minutes=20))) < SECOND


def test_schedules_that_were_imported_to_look_at_go_on_where_the_other_beat_stopped(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    imported(tmp_path, "beat", dumped(clean={"last_run_at": now - timedelta(hours=9)}))
    settled()

    for _ in range(2):
        imported(tmp_path, "beat", dumped(clean={"last_run_at": now - timedelta(minutes=40)}), "--on")
        settled()

    [(_, nominal)] = fired()
    assert abs(nominal - (now - timedelta(minutes=10))) < SECOND


def test_what_a_person_has_paused_stays_paused_though_it_has_never_fired(tmp_path: Path) -> None:
    file = dumped(clean={"last_run_at": datetime.now(UTC)}, report={"last_run_at": datetime.now(UTC)})
    imported(tmp_path, "beat", file)
    schedule = Schedule.objects.get(task__name="clean")
    pause_schedule(resume_schedule(schedule, by="test"), by="test")

    again = imported(tmp_path, "beat", file, "--on")

    assert [change["what"] for change in again["changes"]] == ["schedule report"]
    assert list(PeriodicTask.objects.filter(wakeful__trigger__agent="job", enabled=False)) == [schedule.task]


def test_what_was_edited_between_a_look_and_the_switch_over_stays_so(tmp_path: Path) -> None:
    file = dumped(clean={"last_run_at": datetime.now(UTC) - timedelta(minutes=40)})
    imported(tmp_path, "beat", file)
    looked_at = Schedule.objects.get(task__name="clean")
    edit_schedule(looked_at, policy=SchedulePolicy(jitter=timedelta(seconds=7), data={}), by="test")
    settled()

    imported(tmp_path, "beat", file, "--on")

    [schedule] = Schedule.objects.filter(trigger__agent="job")
    assert (schedule.pk, schedule.jitter) == (looked_at.pk, timedelta(seconds=7)) and schedule.task.enabled


def test_a_schedule_that_is_here_and_has_been_on_is_not_made_again(tmp_path: Path) -> None:
    file = dumped(clean={"last_run_at": datetime.now(UTC)})
    imported(tmp_path, "beat", file, "--on")
    before = Schedule.objects.get(task__name="clean")
    Schedule.objects.filter(pk=before.pk).update(fires=1)
    pause_schedule(before, by="test")

    again = imported(tmp_path, "beat", file, "--on")

    assert again["changes"] == [] and not Schedule.objects.get(pk=before.pk).task.enabled


@pytest.mark.parametrize("args", ["[" * 100_000, '["\\u0000"]', '["\\ud800"]', "[NaN]", "(1,)"])
def test_arguments_that_no_event_can_hold_are_refused_by_the_name_of_the_task(tmp_path: Path, args: str) -> None:
    assert "clean" in refusal(tmp_path, "beat", dumped(clean={"args": args}))


def test_what_has_fired_its_once_and_what_is_celery_s_is_left_out(tmp_path: Path) -> None:
    file = dumped(
        **{"celery.backend_cleanup": {"by": "crontab", "task": "celery.backend_cleanup"}},
        done={"by": "clocked", "one_off": True, "enabled": False},
    )

    report = imported(tmp_path, "beat", file)

    assert [entry["becomes"] for entry in report["entries"]] == ["", ""] and not report["changes"]


def test_names_that_give_one_slug_give_two_triggers(tmp_path: Path) -> None:
    imported(tmp_path, "beat", dumped(**{"clean up": {}, "clean: up": {}, "clean-up": {}}))

    assert Trigger.objects.filter(agent="job").count() == 3


def test_tasks_that_are_in_this_database_are_adopted_not_imported(tmp_path: Path) -> None:
    file = dumped(clean={})
    PeriodicTask.objects.create(
        name="clean", task="shop.clean", interval=IntervalSchedule.objects.create(every=1, period="days")
    )

    said = refusal(tmp_path, "beat", file)

    assert "WAKEFUL_ADOPT_PERIODIC_TASKS" in said


@pytest.mark.parametrize("program", ["beat", "healthchecks"])
@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        "[1]",
        "nonsense",
        '[{"model": "django_celery_beat.periodictask", "pk": 1, "fields": {}}]',
        '[{"model": "django_celery_beat.periodictask", "pk": [], "fields": {}}]',
    ],
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, program: str, content: str) -> None:
    assert refusal(tmp_path, program, content)


# Healthchecks


def check(name: str, **fields: Any) -> dict[str, Any]:
    """As the API lists it."""
    return {
        "name": name, "slug": name.lower(), "tags": "", "desc": "", "grace": 3600, "n_pings": 4, "status": "up", "started": False,
        "last_ping": None, "next_ping": None, "manual_resume": False, "methods": "", "subject": "", "subject_fail": "",
        "start_kw": "", "success_kw": "", "failure_kw": "", "filter_subject": False, "filter_body": False, "timeout": 86400,
        "ping_url": f"https://hc.example.com/{name}", "channels": "a,b", **fields,
    }  # fmt: skip


def test_checks_become_switches_and_the_report_has_both_addresses(tmp_path: Path, client: Any) -> None:
    checks = {"checks": [check("Backup"), check("Paused", status="paused", grace=60, methods="POST")]}

    report = imported(tmp_path, "healthchecks", checks, agent="")

    backup, paused = Source.objects.filter(kind="ping").order_by("slug")
    assert (backup.slug, backup.enabled, backup.settings) == ("backup", True, {"every": "86400s", "grace": "3600s"})
    assert (paused.slug, paused.enabled, paused.settings["grace"]) == ("paused", False, "60s")
    first, second = report["entries"]
    assert first["old_address"] == "https://hc.example.com/Backup"
    path = re.sub("^https?://[^/]+", "", first["new_address"])
    assert client.post(path).status_code == 200
    assert "POST alone" in " ".join(second["notes"])
    assert not keys_in_use().unreadable


def test_a_second_import_keeps_switches_and_their_addresses(tmp_path: Path) -> None:
    checks = {"checks": [check("Backup")]}
    imported(tmp_path, "healthchecks", checks, "--dry-run", agent="")
    assert not Source.objects.filter(kind="ping").exists()
    imported(tmp_path, "healthchecks", checks, agent="")
    source = Source.objects.get(kind="ping")
    Source.objects.filter(pk=source.pk).update(
        enabled=False, settings={**source.settings, "active_hours": "mon-fri 09:00-17:00"}
    )
    secrets = list(source.secrets.values_list("pk", flat=True))

    again = imported(tmp_path, "healthchecks", checks, agent="")

    assert again["changes"] == [] and again["entries"][0]["new_address"] == ""
    assert list(source.secrets.values_list("pk", flat=True)) == secrets and not Source.objects.get(pk=source.pk).enabled


def test_a_cron_schedule_becomes_the_longest_time_between_two_pings(tmp_path: Path) -> None:
    weekdays = check("Weekdays", schedule="0 9 * * 1-5", tz="UTC")
    del weekdays["timeout"]
    calendar = check("Calendar", schedule="*-*-* 05:00", tz="UTC")

    report = imported(tmp_path, "healthchecks", {"checks": [weekdays, calendar]}, agent="")

    assert Source.objects.get(kind="ping").settings["every"] == f"{3 * 86400}s"
    assert [entry["becomes"] for entry in report["entries"]] == ["source weekdays", ""]


def test_an_agent_is_woken_when_a_switch_opens_and_two_checks_may_have_one_name(tmp_path: Path) -> None:
    twice = [check("Job"), check("Job", ping_url="https://hc.example.com/other")]

    imported(tmp_path, "healthchecks", {"checks": twice})

    triggers = Trigger.objects.filter(agent="job")
    assert len({trigger.source for trigger in triggers}) == 2
    assert {tuple(trigger.types) for trigger in triggers} == {("absence.opened",)}


def test_an_import_is_in_the_audit_log(tmp_path: Path) -> None:
    imported(tmp_path, "crontab", CRONTAB)

    entries = AuditEntry.objects.filter(by__startswith="cli:")
    assert entries.filter(action="import", kind="crontab").get().detail == {"changes": 8}
    assert entries.filter(action="create", kind="schedule").count() == 4

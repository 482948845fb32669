"""Import what another program's file became: all of it or nothing, and a second time without a second schedule."""

from collections.abc import Collection
from datetime import datetime

from django.db import transaction
from django.db.models import Q
from django_celery_beat.models import PeriodicTask

from agents.guards.atomic import not_in_atomic_body
from runs.db.sql import fetch
from runs.exceptions import IllegalState
from runs.models.audit import record_about
from runs.network.site import site
from triggers.declarations.sync import LOCK, TAKE_LOCK
from triggers.models import Revision, Schedule, Skip, Source
from triggers.schedules.edit import pause_schedule, resume_schedule
from triggers.sources.secrets import rotate
from triggers.sources.webhooks.scheme import schemes
from triggers.switches.switch import PING
from triggers.transfer.carry_out import Import, import_triggers
from triggers.transfer.check import ImportRefused
from triggers.transfer.export import FORMAT, VERSION
from triggers.transfer.foreign.brought import Brought
from triggers.transfer.foreign.lines import recognise

HERE_ALREADY = (
    "{count} of these tasks are in this database already, such as {name}: if no other Beat is to fire them, stop it and set "
    "WAKEFUL_ADOPT_PERIODIC_TASKS=true instead of an import; else rename them in the file"
)
WAITS = "imported, and not switched on yet"
GONE = "its line is no longer in the crontab"
ADDRESSES = "the addresses of new switches are in this report alone: enter them at the jobs now, or make new ones in the console"


@not_in_atomic_body
def bring(brought: Brought, *, program: str, is_on: bool, by: str, dry_run: bool) -> Import:
    """Raises ImportRefused with every problem; then nothing is changed. `is_on`: schedules fire from now on; else they are paused, and
    resumed one by one. A schedule that is here already stays on or paused as it is; with `is_on`, one that an import has paused is resumed,
    and goes on from where the other program stopped. One whose line is no longer in its crontab is paused."""
    if brought.problems:
        raise ImportRefused(brought.problems)
    with transaction.atomic():
        fetch(TAKE_LOCK, [LOCK])  # of two imports at a time, the second sees what the first has made
        gone = recognise(brought) if brought.crontab else []
        known, waiting = _known(brought), _waiting(brought) if is_on else []
        for trigger, entry in zip(brought.triggers, brought.schedules, strict=False):
            if entry["name"] in known:
                entry.pop("enabled", None)
                trigger.pop("overlap")
                trigger.pop("policy")
            else:
                entry["enabled"] = is_on and entry.get("enabled", True)
        new_switches = _new_switches(brought)
        done = import_triggers(_file(brought), by=by)
        _mark([entry["name"] for entry in brought.schedules if entry.get("enabled") is False])
        begun = {entry["name"] for entry in brought.schedules if entry.get("enabled")}
        begun |= {schedule.task.name for schedule in waiting if _begin(schedule, done, by=by)}
        for name in begun & brought.owed_since.keys():
            _go_on(name, brought.owed_since[name])
        for schedule in gone:
            _end(schedule, done, by=by)
        _address(brought, new_switches, by, dry_run=dry_run)
        done.notes = [note for note in done.notes if "has no secret yet" not in note]
        if done.changes:
            record_about(by, "import", program, "*", changes=len(done.changes))
        transaction.set_rollback(dry_run)
    return done


def _file(brought: Brought) -> dict[str, object]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "sources": brought.sources,
        "triggers": brought.triggers,
        "schedules": brought.schedules,
    }


def _known(brought: Brought) -> set[str]:
    """The names of schedules that are here. ImportRefused if they are of other tasks."""
    triggers = {entry["name"]: entry["trigger"] for entry in brought.schedules}
    rows = PeriodicTask.objects.filter(name__in=triggers).values_list("name", "wakeful__trigger__slug")
    if others := sorted(name for name, slug in rows if slug != triggers[name]):
        raise ImportRefused([HERE_ALREADY.format(count=len(others), name=others[0])])
    return {name for name, _ in rows}


def _waiting(brought: Brought) -> list[Schedule]:
    """Schedules that an earlier import has paused, and that have been neither resumed nor paused since."""
    by_import = Q(fires=0, paused_note=WAITS) | Q(paused_note=GONE)
    names = [entry["name"] for entry in brought.schedules if entry.get("enabled", True)]
    return list(
        Schedule.objects.select_related("task", "trigger")
        .filter(by_import, task__name__in=names, task__enabled=False)
        .select_for_update(of=["task"], no_key=True)
        .order_by("task_id")
    )


def _mark(paused: Collection[str]) -> None:
    """A pause of a person has another note, or none."""
    Schedule.objects.filter(task__name__in=paused).update(paused_note=WAITS)


def _begin(schedule: Schedule, done: Import, *, by: str) -> bool:
    try:
        resume_schedule(schedule, by=by)
    except IllegalState as refusal:
        done.notes.append(f"schedule {schedule.task.name} is unchanged: {refusal}")
        return False
    done.changed(f"schedule {schedule.task.name}", {"enabled": (False, True)})
    return True


def _end(schedule: Schedule, done: Import, *, by: str) -> None:
    name = schedule.task.name
    if schedule.status != "active":
        done.notes.append(f"schedule {name} is {schedule.status}, and {GONE}: delete it if it is not to come back")
        return
    pause_schedule(schedule, by=by, note=GONE)
    done.changed(f"schedule {name}", {"enabled": (True, False)})
    done.notes.append(f"schedule {name} is paused now: {GONE}")


def _go_on(name: str, since: datetime) -> None:
    """What fell due until then, the other program has fired; what fell due since is owed, by the catch-up of the schedule: also what
    fell due while it waited here."""
    schedules = Schedule.objects.filter(task__name=name)
    Revision.objects.filter(schedule__in=schedules).delete()
    Skip.objects.filter(schedule__in=schedules).delete()
    PeriodicTask.objects.filter(name=name).update(last_run_at=since)
    schedules.update(accounted_until=since, spec="", anchor_at=None)


def _new_switches(brought: Brought) -> set[str]:
    slugs = {entry["slug"] for entry in brought.sources}
    return slugs - set(Source.objects.filter(slug__in=slugs).values_list("slug", flat=True))


def _address(brought: Brought, new: Collection[str], by: str, *, dry_run: bool) -> None:
    """Give each new switch a token; its address is in the report, and nowhere else."""
    for line in brought.lines:
        if line.switch in new:
            token = "" if dry_run else rotate(Source.objects.get(slug=line.switch), by=by)
            line.new_address = f"{site()}{schemes()[PING].address(line.switch, token)}"
    if new and not dry_run:
        brought.notes.append(ADDRESSES)

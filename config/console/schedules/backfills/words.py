"""A backfill's progress and the outcomes of its nominal times, for all pages."""

from django.utils.safestring import SafeString

from config.console.parts.links import link, listing, page
from config.console.parts.moments import moment
from config.console.parts.progress import Bar, Part
from config.console.parts.sections import Section, Table
from config.console.schedules.words import in_zone, zone_of_schedule
from triggers.models import Backfill, BackfillTick, Schedule
from triggers.schedules.backfill.advance import Progress, progress, progress_of

COLOURS = {"running": "primary", "done": "success", "cancelled": "default"}
SHOWN = 5
Outcome = BackfillTick.Outcome
ORDER = (Outcome.SUCCEEDED, Outcome.THERE, Outcome.OPEN, Outcome.FAILED, Outcome.REFUSED, Outcome.CANCELLED)


def bar_of(backfill: Backfill) -> Bar:
    counts = progress(backfill)
    total = max(counts.total, counts.taken, 1)
    parts = [
        Part(name=outcome, words=str(outcome.label), count=count, percent=round(100 * count / total, 2))
        for outcome in ORDER
        if (count := getattr(counts, outcome))
    ]
    return Bar(
        title="Progress",
        total=counts.total,
        ended=counts.ended,
        parts=parts,
        goes_on=backfill.ended_at is None,
        empty="No time has fired yet.",
    )


def range_of(backfill: Backfill) -> str:
    """E.g. “Fri 20 Nov 2026, 00:00 to Sat 21 Nov 2026, 00:00 (Europe/Vienna)”; the end is exclusive."""
    zone = zone_of_schedule(backfill.schedule)
    return f"{in_zone(backfill.start, zone)} to {in_zone(backfill.end, zone)} ({zone})"


def state_of_backfill(backfill: Backfill) -> str:
    """A cancelled backfill ends only after its last run has ended."""
    if backfill.status == Backfill.Status.CANCELLED and backfill.ended_at is None:
        return "cancelling"
    return backfill.status


def backfills_of(schedule: Schedule) -> list[Section]:
    """The newest backfills of a schedule, if there are any."""
    newest = list(schedule.backfills.select_related("schedule__task__crontab").order_by("-id")[:SHOWN])
    if not newest:
        return []
    counts = progress_of(newest)
    return [
        Table(
            title="Backfills",
            headers=("Range", "State", "Done", "Created", "By"),
            rows=[
                (backfill_link(one), state_of_backfill(one), _done(counts[one.pk]), moment(one.created_at), one.by)
                for one in newest
            ],
            empty="",
            note=link(listing("triggers_backfill", q=schedule.task.name), "All of its backfills")
            if len(newest) == SHOWN
            else "",
        )
    ]


def backfill_link(backfill: Backfill) -> SafeString:
    return link(page("triggers_backfill", backfill.pk), range_of(backfill))


def _done(counts: Progress) -> str:
    return f"{counts.ended:,} of {counts.total:,}"

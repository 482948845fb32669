"""Reports as notifications. Whom they reach, when, and how many become one message is decided by the rules of the recipients."""

from collections.abc import Sequence
from itertools import groupby

from agents.kernel.report import Report
from runs.models import Notification
from triggers.reports.end import End

ALONE = 3  # of the same outcome in half a second; more of them are one notification

Told = tuple[Report, End]


def notify(ends: Sequence[End]) -> None:
    """Write the notifications: one for each end, or one for many of the same trigger and outcome."""
    told = [(report, end) for end in ends for report in end.reports if report.notify]
    notices: list[Notification] = []
    for _, same in groupby(sorted(told, key=_kind), _kind):
        group = list(same)
        notices += [_of_many(group)] if len(group) > ALONE else [_of_one(one) for one in group]
    Notification.objects.bulk_create(notices)


def _kind(one: Told) -> tuple[bool, Sequence[str], str, str, str, str]:
    """What ends of one notification have in common."""
    report, end = one
    return bool(report.by), report.recipients, end.agent, end.trigger, end.outcome, end.urgency(report)


def _of_one(one: Told, text: str = "") -> Notification:
    report, end = one
    return Notification(
        sender=end.agent or end.name,
        run_id=end.run,
        urgency=end.urgency(report),
        text=text or end.text,
        link=f"run:{end.run}" if end.run else f"event:{end.event}",
        to=list(report.recipients),
    )


def _of_many(group: Sequence[Told]) -> Notification:
    _, last = group[-1]
    return _of_one(group[-1], f"{last.name}: {len(group):,} runs ended so at once. The last: {last.text}")

"""Reports as answers to the messages that woke the runs. Strangers may read them, so they have the result of a success, and of any other
end only its name. No person sees them first, so a run that has seen data of strangers reports only where its source allows that."""

from collections.abc import Sequence

import structlog

from agents.exceptions import NoReplyPlace
from agents.kernel.reply_place import ReplyPlace
from runs.models import Notification
from runs.notifications.replies import enter_replies
from runs.ports import ports
from triggers.reports.end import End

log = structlog.get_logger(__name__)


def reply(ends: Sequence[End]) -> None:
    """Once for each end, however many reports it has."""
    payloads = []
    for end in ends:
        if any(report.reply for report in end.reports) and (place := _place_of(end)):
            text = end.text if end.has_succeeded else f"{end.name} {end.outcome}"
            run = str(end.run) if end.run else None
            payloads.append({"run": run, "sender": end.agent or end.name, "text": text, "place": vars(place)})
    if payloads:
        enter_replies(payloads)


def _place_of(end: End) -> ReplyPlace | None:
    """None: there is none. A report that goes nowhere must not fail silently; the same text is sent once a day."""
    try:
        if end.event is None:
            raise NoReplyPlace("no event woke it")
        place = ports.reply_place(end.event)
        if place.asks and end.is_tainted:
            raise NoReplyPlace(
                "the run has seen data of strangers, so a person has to see its answer first, and no one sees a report: set “Reply” of "
                "the source to “yes”, or let the model use the tool reply"
            )
        return place
    except NoReplyPlace as error:
        log.warning("report.no_reply_place", agent=end.agent, trigger=end.trigger, reason=str(error))
        why = str(error).removeprefix("run.reply: ")
        Notification.objects.create(
            sender=end.agent or end.name,
            text=f"{end.name} reports by a reply, and cannot: {why}",
            topic=f"report-reply:{end.name}"[:200],
        )
        return None

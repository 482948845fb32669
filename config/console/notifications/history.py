"""The history of a recipient's notifications."""

from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.http import HttpRequest
from django.utils.safestring import SafeString

from config.console.notifications.words import delivery_link, dot, text_of
from config.console.parts.html import format_html
from config.console.parts.links import joined, link
from config.console.parts.moments import instant
from config.console.parts.sections import Section, Table
from runs.db.sql import fetch
from runs.models import Delivery, Recipient

PER_PAGE = 50
COUNTED = 10_000  # its newest deliveries, which are counted and filtered
NEWEST = """
SELECT status, count(*), min(id::text)::uuid FROM (
  SELECT id, status FROM runs_delivery WHERE recipient_id = %s ORDER BY id DESC LIMIT %s) newest
GROUP BY status ORDER BY status
"""


class Asked(forms.Form):
    """The requested part of the history; invalid values are ignored."""

    status = forms.ChoiceField(choices=Delivery.Status.choices, required=False)
    before = forms.UUIDField(required=False)


def history(request: HttpRequest, recipient: Recipient) -> Section:
    """A page of it, the newest first; `?status=` and `?before=` choose which."""
    asked = Asked(request.GET)
    asked.is_valid()
    status, before = asked.cleaned_data.get("status", ""), asked.cleaned_data.get("before")
    counted = fetch(NEWEST, [recipient.pk, COUNTED])
    counts = {status: count for status, count, _ in counted}
    theirs = recipient.deliveries.select_related("notification").order_by("-id")
    if status:
        theirs = theirs.filter(status=status, id__gte=min((first for _, _, first in counted), default=UUID(int=0)))
    if before:
        theirs = theirs.filter(id__lt=before)
    rows = list(theirs[: PER_PAGE + 1])
    return Table(
        title="Deliveries",
        note=joined([_filters(counts, status), _pager(rows, status, before)], separator=" "),
        headers=("Written", "Status", "Message", "Urgency", "Why", "Sent", "Due", "Tries", "Acknowledged"),
        rows=[
            (
                _at(one.created_at),
                dot(one.status),
                delivery_link(one.pk, text_of(one.notification)),
                one.notification.urgency,
                _reason(one),
                _at(one.sent_at),
                _at(one.due_at),
                one.attempts or "–",
                f"by {one.acknowledged_by}" if one.acknowledged_at else "–",
            )
            for one in rows[:PER_PAGE]
        ],
        empty="None.",
        is_cards=True,
    )


def _at(at: datetime | None) -> SafeString | str:
    return instant(at) if at else "–"


def _reason(delivery: Delivery) -> Any:
    if delivery.merged_into_id:
        return format_html("{}: {}", delivery.reason, delivery_link(delivery.merged_into_id, "the message"))
    why = [delivery.reason, delivery.error if delivery.error not in delivery.reason else ""]
    return "; ".join(filter(None, why)) or "–"


def _filters(counts: dict[str, int], chosen: str) -> SafeString:
    total = sum(counts.values())
    choices = [("", f"all {total:,}{'+' if total == COUNTED else ''}")]
    choices += [(status, f"{status} {count:,}") for status, count in counts.items()]
    shown = [format_html("<b>{}</b>", words) if one == chosen else _to(words, status=one) for one, words in choices]
    return joined(shown, " · ")


def _pager(rows: list[Delivery], status: str, before: UUID | None) -> SafeString:
    links = [_to("Newest", status=status)] if before else []
    if len(rows) > PER_PAGE:
        links.append(_to("Older", status=status, before=rows[PER_PAGE - 1].pk))
    return joined([SafeString("&nbsp; "), *links], " ") if links else SafeString("")


def _to(words: str, **asked: Any) -> SafeString:
    return link(f"?{urlencode({name: value for name, value in asked.items() if value})}", words)

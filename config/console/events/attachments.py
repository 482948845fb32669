"""The attachments of a mail: a table on the page of its event, and their download."""

from typing import Any
from uuid import UUID

from django.http import Http404, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.http import content_disposition_header

from config.console.parts.links import link
from config.console.parts.sections import Section, Table
from triggers.models import Event
from triggers.sources.attachments import attachments_of

ATTACHMENT = "triggers_event_attachment"
NOTE = "Files of strangers, not checked for viruses."


def attachments(event: Event) -> list[Section]:
    found = _described(event.data)
    if not found:
        return []
    rows = [
        (
            link(reverse(f"admin:{ATTACHMENT}", args=[event.pk, number]), one["name"]),
            one.get("type", ""),
            filesizeformat(one["size"]),
            "in the text" if one.get("is_inline") else "",
            str(one["sha256"])[:16],
        )
        for number, one in enumerate(found, start=1)
    ]
    return [Table(title="Attachments", headers=("Name", "Type", "Size", "", "SHA-256"), rows=rows, empty="", note=NOTE)]


def download(event_id: UUID, number: int) -> HttpResponse:
    """Send an attachment as a file that no browser opens by itself."""
    found = attachments_of(event_id)
    if not 1 <= number <= len(found):
        raise Http404
    one = found[number - 1]
    headers = {"Content-Security-Policy": "sandbox", "X-Content-Type-Options": "nosniff"}
    headers["Content-Disposition"] = content_disposition_header(True, one.name) or "attachment"
    return HttpResponse(one.content, content_type="application/octet-stream", headers=headers)


def _described(data: Any) -> list[dict[str, Any]]:
    """The attachments as the data of mail describes them. Other events have lists of this name, too."""
    found = data.get("attachments") if isinstance(data, dict) and "thread_id" in data else None
    items = found if isinstance(found, list) else []
    are_ours = all(isinstance(one, dict) and {"name", "size", "sha256"} <= one.keys() for one in items)
    return items if are_ours else []

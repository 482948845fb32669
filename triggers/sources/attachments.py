"""Attachments of mail with their content, from the body of its event."""

from collections.abc import Mapping
from uuid import UUID

from triggers.models import Event
from triggers.sources.http.forms import NoForm, is_form, parse_form
from triggers.sources.http.headers import Headers
from triggers.sources.mail import Attachment, attachments_in
from triggers.sources.parsed_mail import as_attachments

WHOLE = ("email", "body-mime")  # fields in which SendGrid and Mailgun send the message as it was sent


def attachments_of(event_id: UUID) -> list[Attachment]:
    """The attachments of an event, in the order of `attachments` in its data. Empty if the event is no mail, or its
    payload was removed.
    """
    event = Event.objects.only("body", "headers").get(pk=event_id)
    return attachments_in_body(bytes(event.body or b""), event.headers or {})


def attachments_in_body(body: bytes, headers: Mapping[str, str]) -> list[Attachment]:
    """The attachments of a message, or of the form with which a provider sends one."""
    named = Headers(headers)
    if not is_form(named):
        return attachments_in(body)
    try:
        form = parse_form(named, body)
    except NoForm:
        return []
    whole = next((form.fields[name] for name in WHOLE if form.fields.get(name)), None)
    return attachments_in(whole) if whole else as_attachments(form.files)

"""The payload of an event as a page shows it."""

from config.console.parts.html import shown
from config.console.parts.sections import Text, pretty
from triggers.models import Event

LONGEST = 100_000  # characters of a text on a page
REMOVED = "Removed by retention or erasure."


def payload_of(event: Event, title: str = "Payload") -> Text:
    if event.payload_removed_at:
        return Text(title=title, text=REMOVED)
    if event.data is not None:
        return Text(title=title, text=pretty(event.data))
    if event.body is None:
        return Text(title=title, text="none")
    text = bytes(event.body)[:LONGEST].decode("utf-8", "backslashreplace")
    return Text(title="Body", text=text, note=event.data_error and f"Not stored as JSON: {event.data_error}")


def cut(text: str) -> tuple[str, str]:
    """The beginning of a long text, without secrets, and a note about the rest. A secret that is cut would not be recognized."""
    clean = str(shown(text))
    if len(clean) <= LONGEST:
        return clean, ""
    return clean[:LONGEST], f"The first {LONGEST:,} of {len(clean):,} characters."

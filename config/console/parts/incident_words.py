"""Who acknowledged or muted an incident, when, and until when, in words."""

from datetime import datetime

from config.console.parts.html import format_html
from config.console.parts.moments import moment
from config.console.parts.sections import Cell
from runs.models import Incident


def end_of_mute(incident: Incident) -> Cell:
    """Until when, in words."""
    if incident.muted_until:
        return format_html("until {}", moment(incident.muted_until))
    if incident.muted_versions:
        return f"until a worker starts with a version other than {' and '.join(incident.muted_versions)}"
    return "until it is closed"


def acknowledged(incident: Incident) -> Cell:
    return _by(incident.acknowledged_by, incident.acknowledged_at, incident.acknowledged_note)


def muted(incident: Incident) -> Cell:
    if not incident.muted_at:
        return ""
    return format_html("{}; {}", end_of_mute(incident), _by(incident.muted_by, incident.muted_at, incident.muted_note))


def _by(who: str, at: datetime | None, note: str) -> Cell:
    return format_html("by {} {}{}", who, moment(at), f": {note}" if note else "") if at else ""

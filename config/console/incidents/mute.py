"""The dialogs in which a person acknowledges or mutes an incident."""

from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from unfold.forms import BaseDialogForm

from config.console.parts import fields
from config.console.parts.browser_zone import zone_shown
from config.console.parts.dialogs import dialog
from config.console.parts.time_field import LocalTime
from runs.actions.incidents import NOTE, UNTIL_CLOSED, UNTIL_VERSION
from triggers.schedules.clock import instant_of

AT = "at"
ENDS = [
    (UNTIL_VERSION, "until the next version of the code"),
    ("1h", "for 1 hour"),
    ("8h", "for 8 hours"),
    (AT, "until the time below"),
    (UNTIL_CLOSED, "until it is closed"),
]


class AcknowledgeForm(BaseDialogForm):  # type: ignore[misc]
    note = fields.CharField(required=False, max_length=NOTE, help_text="Shown to others beside your name.")


class MuteForm(BaseDialogForm):  # type: ignore[misc]
    until = fields.RadioField(label="Mute", choices=ENDS, initial=UNTIL_VERSION)
    at = LocalTime(
        required=False, label="Time", help_text="Only for “until the time below”, by the clock of this console."
    )
    note = fields.CharField(required=False, max_length=NOTE, help_text="Shown to others beside your name.")

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or self.cleaned_data
        if given.get("until") == AT:
            if not given.get("at"):
                raise ValidationError({"at": "Enter a time, or choose another end."})
            given["until"] = self._with_offset(given["at"]).isoformat()
        return given

    def _with_offset(self, at: datetime) -> datetime:
        return at if at.tzinfo else instant_of(at, zone_shown(self.request))


ACKNOWLEDGE = dialog(
    "Acknowledge this incident?",
    "You look into it: it is escalated no further, and people get no further message while it is open.",
    "Acknowledge it",
    AcknowledgeForm,
)
MUTE = dialog(
    "Mute this cause?",
    "People get no message about it. It stays on this page and on Overview, counted apart. Other causes are not muted.",
    "Mute it",
    MuteForm,
)
UNMUTE = dialog(
    "End this mute?",
    "If it is open, people get a message at its next failure, at the latest in an hour.",
    "End the mute",
)

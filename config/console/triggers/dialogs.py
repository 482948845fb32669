"""The dialogs of a trigger: fire, pause, resume, dispatch again."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django import forms
from django.utils import timezone
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminTextareaWidget

from config.console.notifications.report_to_me import ReportToMe
from config.console.parts import fields
from triggers.dispatch.failing_triggers import LATELY
from triggers.dispatch.offers import count
from triggers.models import Decision

HELD = Decision.Outcome.HELD
RESUMED = "Resumed. Held events are run or dropped in batches."


class FireForm(ReportToMe):
    data = forms.JSONField(
        required=False,
        initial=dict,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 5}),
        label="Data (JSON)",
        help_text="Passed to the agent as event.data.",
    )


class PauseForm(BaseDialogForm):  # type: ignore[misc]
    reason = fields.CharField(max_length=300, label="Reason", help_text="Shown while the trigger is paused.")


class ResumeForm(BaseDialogForm):  # type: ignore[misc]
    held = fields.RadioField(initial="run", label="Held events", choices=[("run", ""), ("drop", "")])

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        count = Decision.objects.filter(trigger=self.object_id, outcome=HELD).count()
        self.fields["held"].choices = [("run", f"Run them in order ({count})"), ("drop", f"Drop them ({count})")]


class RedispatchForm(BaseDialogForm):  # type: ignore[misc]
    errors = fields.RadioField(
        initial="lately", label="Events that ended in an error", choices=[("lately", ""), ("all", "")]
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        lately, all_ = (count("error", UUID(str(self.object_id)), since) for since in (a_day_ago(), None))
        self.fields["errors"].choices = [("lately", f"Of the last day ({lately})"), ("all", f"All ({all_})")]


def a_day_ago() -> datetime:
    return timezone.now() - LATELY

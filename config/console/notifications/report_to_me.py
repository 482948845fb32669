"""The fields with which a person who starts a run asks for a report of its end."""

from typing import Any

from unfold.forms import BaseDialogForm

from agents.kernel.report import Report
from config.console.parts import fields
from runs.notifications.edit import open_inbox
from triggers.reports.destinations import recipients

INBOX = ""  # of the person; it is opened if there is none


class ReportToMe(BaseDialogForm):  # type: ignore[misc]
    report = fields.BooleanField(
        required=False,
        label="Report to me when it ends",
        help_text="Its result or its error in words, also if no run comes of it.",
    )
    report_to = fields.ChoiceField(required=False, label="Report to", help_text="Its rules decide when it is sent.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["report_to"].choices = [(INBOX, "my inbox"), *((name, name) for name in recipients())]


def asked_report(report: bool, report_to: str, *, by: str) -> Report | None:
    """The report that the dialog of this account (`panel.acting`) asks for, if any."""
    if not report:
        return None
    username = by.partition(":")[2]
    return Report(notify=report_to or open_inbox(username, gets_all=False, by=by).name)

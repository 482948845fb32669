"""The reports of a trigger as lines of a form, one report each."""

from typing import Any

from django.core.exceptions import ValidationError

from agents.kernel.report import Report, read_reports
from config.console.parts import fields
from triggers.reports.destinations import require_known


class ReportsField(fields.ExpandableField):
    """Its value is a list of reports as a policy stores them."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            required=False,
            label="Reports",
            help_text="Say where the outcome of a run goes, one per line: <code>failure: notify ops</code>, "
            "<code>success: webhook crm; event</code>, <code>end: notify</code>. A failure is every end that is no success. Without "
            "names, those who get everything are notified; a webhook is a subscription; <code>event</code> records "
            "<code>run.finished</code> for triggers that name it.",
            **kwargs,
        )

    def clean(self, value: Any) -> Any:
        try:
            reports = read_reports([Report.of_line(line) for line in (value or "").splitlines() if line.strip()])
            require_known(reports)
        except ValueError as error:
            raise ValidationError(str(error)) from None
        return [report.dump() for report in reports]

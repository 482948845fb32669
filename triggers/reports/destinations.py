"""The names that reports may have: recipients, groups and subscriptions."""

from collections.abc import Iterable, Sequence

from agents.kernel.report import Report
from runs.models import Recipient, RecipientGroup
from triggers.exceptions import Invalid
from triggers.models import Subscription


def recipients() -> list[str]:
    names = [*Recipient.objects.values_list("name", flat=True), *RecipientGroup.objects.values_list("name", flat=True)]
    return sorted(names)


def subscriptions() -> list[str]:
    return sorted(Subscription.objects.values_list("slug", flat=True))


def require_known(reports: Sequence[Report]) -> None:
    """Raise Invalid if a report names a recipient, a group or a subscription that does not exist."""
    problems = [
        *_unknown((name for report in reports for name in report.recipients), recipients(), "recipient"),
        *_unknown((name for report in reports for name in report.webhooks), subscriptions(), "subscription"),
    ]
    if problems:
        raise Invalid(problems)


def _unknown(named: Iterable[str], known: Sequence[str], what: str) -> Iterable[str]:
    for name in dict.fromkeys(named):
        if name not in known:
            yield f"report: no {what} is named {name!r}; there are: {', '.join(known[:20]) or 'none'}"

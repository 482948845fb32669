"""What fails: open incidents, and what fails now and then, with and without an incident."""

from collections import defaultdict
from collections.abc import Collection
from datetime import timedelta

from django.db.models import F
from django.db.models.functions import Now

from config.console.incidents.failure_rates import Failing, failed_lately
from runs.actions.incidents import IN_STATUS
from runs.models import Incident

DAY = timedelta(days=1)
ENDED = 1_000  # incidents that were closed in the last day
Thing = tuple[str, str]  # kind and subject
INTERMITTENT, FAILED_SINCE = "fails now and then", "failed since"  # a success closed it, a person did


def failing_things(most: int) -> tuple[list[Incident], list[Failing]]:
    """Open incidents, the newest first, then closed ones whose thing has failed since, then failures without an incident."""
    found = list(Incident.objects.filter(IN_STATUS["open"]).order_by("-id")[:most])
    lately = Incident.objects.filter(last_at__gt=Now() - DAY, closed_at__lt=F("last_at"))
    found += lately.order_by("-last_at")[: most - len(found)]
    return found, _without_incident({(one.kind, one.subject) for one in found})[: most - len(found)]


def _without_incident(shown: Collection[Thing]) -> list[Failing]:
    """What has failed in the last day, too seldom in a row for an incident, or with another cause after the end of one."""
    ended: dict[Thing, list[Incident]] = defaultdict(list)
    # It ended after its last failure, which an index finds.
    closed = Incident.objects.filter(last_at__gt=Now() - DAY, closed_at__isnull=False)
    for one in closed.only("kind", "subject", "closed_at").order_by("-last_at")[:ENDED]:
        ended[one.kind, one.subject].append(one)

    def is_over(one: Failing) -> bool:
        return any(end.closed_at and end.closed_at >= one.last_at for end in ended[_thing(one)])

    return [one for one in failed_lately() if _thing(one) not in shown and not is_over(one)]


def _thing(one: Failing) -> Thing:
    return (Incident.Kind.TRIGGER, one.trigger) if one.trigger else (Incident.Kind.AGENT, one.agent)

"""What fails: open incidents, and what fails now and then, with and without an incident."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import F, Q
from django.db.models.functions import Now

from config.console.incidents.failure_rates import Failing, failed_lately
from runs.actions.incidents import IN_STATUS, MUTED
from runs.models import Incident

DAY = timedelta(days=1)
ENDED = 1_000  # incidents that were closed in the last day
Thing = tuple[str, str]  # kind and subject
INTERMITTENT, FAILED_SINCE = "fails now and then", "failed since"  # a success closed it, a person did
LATELY = Q(last_at__gt=Now() - DAY, closed_at__lt=F("last_at"))
FAILS = IN_STATUS["open"] | LATELY


@dataclass(frozen=True, kw_only=True)
class FailingThings:
    """`incidents`: open ones, the newest first, then closed ones whose thing has failed since. `others`: failures without an incident.
    `muted`: incidents of both sorts that are muted."""

    incidents: Sequence[Incident]
    others: Sequence[Failing]
    muted: Sequence[Incident]


def failing_things(most: int) -> FailingThings:
    """At most so many, and so many that are muted."""
    found = list(Incident.objects.filter(~MUTED, IN_STATUS["open"]).order_by("-id")[:most])
    found += Incident.objects.filter(~MUTED, LATELY).order_by("-last_at")[: most - len(found)]
    muted = list(Incident.objects.filter(MUTED, FAILS).order_by("-last_at")[:most])
    others = _without_incident({(one.kind, one.subject) for one in found}, without_muted=bool(muted))
    return FailingThings(incidents=found, others=others[: most - len(found)], muted=muted)


def _without_incident(shown: Collection[Thing], *, without_muted: bool) -> list[Failing]:
    """What has failed in the last day, too seldom in a row for an incident, or with another cause after the end of one."""
    ended: dict[Thing, list[Incident]] = defaultdict(list)
    # It ended after its last failure, which an index finds.
    closed = Incident.objects.filter(last_at__gt=Now() - DAY, closed_at__isnull=False)
    for one in closed.only("kind", "subject", "closed_at").order_by("-last_at")[:ENDED]:
        ended[one.kind, one.subject].append(one)

    def is_over(one: Failing) -> bool:
        return any(end.closed_at and end.closed_at >= one.last_at for end in ended[_thing(one)])

    lately = failed_lately(without_muted=without_muted)
    return [one for one in lately if _thing(one) not in shown and not is_over(one)]


def _thing(one: Failing) -> Thing:
    return (Incident.Kind.TRIGGER, one.trigger) if one.trigger else (Incident.Kind.AGENT, one.agent)

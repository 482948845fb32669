"""Begin and end alarms, as problems come and go. While no dispatcher is alive, web processes begin that one alarm."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Max

from config.health.problems import NO_DISPATCHER, problems, unknown_kinds
from config.health.situation import Situation, read_situation
from runs.db.sql import database_now
from runs.incidents.note import Failed, Succeeded, Thing, note
from runs.models import Incident
from runs.notifications import alarms
from runs.processes.alive import IS_ALIVE
from runs.processes.lease import Presence, patience
from triggers.models import Source
from triggers.sources.webhooks.signs.refused import REFUSED, Refusing


def update_alarms() -> None:
    """Begin an alarm for each new problem, end the alarms of problems that are over, and note sources that fail."""
    now = read_situation()
    note_sources(now)
    wrong = {problem.name: problem for problem in problems(now)}
    unknown = unknown_kinds(now, wrong.values())
    for name in set(now.alarms) - set(wrong):
        if name.partition(":")[0] not in unknown:
            alarms.end(name)
    for problem in wrong.values():
        # That no dispatcher is alive is no news of this one: after an outage of the database it may not have renewed its row yet.
        if problem.is_alarm and problem.name not in {*now.alarms, NO_DISPATCHER}:
            alarms.begin(problem.name, severity=problem.severity, text=problem.text, remedy=problem.remedy)


def note_sources(now: Situation) -> None:
    """A source fails while it refuses deliveries, and succeeds once its sender is authenticated again."""
    refused = now[REFUSED]
    slugs = {one.slug for one in refused}
    found: list[Failed | Succeeded] = [*_refusals(refused)] if slugs else []
    if REFUSED.limit and len(refused) <= REFUSED.limit:  # of more incidents than that, only some are read
        found += _over(set(now.failing_sources) - slugs)
    note(found)


def _refusals(refused: Sequence[Refusing]) -> Iterator[Failed]:
    closed, at = _latest("closed_at", {one.slug for one in refused}), database_now()
    for one in refused:
        first_at, last_at = at - timedelta(seconds=one.first), at - timedelta(seconds=one.last)
        # What was refused before a person closed the incident does not open it again.
        if one.slug not in closed or closed[one.slug] < last_at:
            yield Failed(
                thing=_source(one.slug), error=one.reason, in_all=one.count, first_at=first_at, last_at=last_at
            )


def _over(slugs: set[str]) -> Iterator[Succeeded]:
    """Whether a source's failure is over. A sender that has only fallen silent has not succeeded."""
    failed = _latest("last_at", slugs)
    enabled = Source.objects.filter(slug__in=slugs, enabled=True)
    proven = dict(enabled.values_list("slug").annotate(at=Max("secrets__last_matched_at")))
    for slug in sorted(slugs):
        if slug not in proven:
            yield Succeeded(thing=_source(slug), by=alarms.WAKEFUL)  # the source is removed or disabled
        elif proven[slug] and slug in failed and proven[slug] > failed[slug]:
            yield Succeeded(thing=_source(slug))


def _latest(column: str, slugs: set[str]) -> dict[str, datetime]:
    """The latest refusal by source, of the sources that have an incident."""
    of_sources = Incident.objects.filter(kind=Incident.Kind.SOURCE, subject__in=slugs).exclude(**{column: None})
    return dict(of_sources.values_list("subject").annotate(at=Max(column)))


def _source(slug: str) -> Thing:
    return Thing(kind=Incident.Kind.SOURCE, subject=slug, name=slug, after=settings.WAKEFUL_INCIDENT_AFTER)


DISPATCHES = f"""
SELECT EXISTS (SELECT FROM runs_worker worker WHERE kind = 'dispatcher' AND draining_at IS NULL AND {IS_ALIVE}) AS is_alive
"""  # noqa: S608  (our own parts)


def stand_in(presence: Presence) -> bool:
    """Renew the row of this process, and begin the alarm that no dispatcher is alive, which dispatchers cannot begin. The next
    dispatcher ends and sends it. Whether one is alive."""
    [is_alive] = presence.ask(lambda is_alive: bool(is_alive), DISPATCHES, patience())
    if is_alive:
        return True
    now = read_situation()
    for problem in problems(now):
        if problem.name == NO_DISPATCHER and problem.is_alarm and problem.name not in now.alarms:
            alarms.begin(problem.name, severity=problem.severity, text=problem.text, remedy=problem.remedy)
    return False

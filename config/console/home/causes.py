"""What fails: one row for each cause, with its evidence and the button that ends it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Count
from django.urls import reverse

from agents.kernel.durations import in_words
from config.console.home.deploys import Deploy, deploy_before
from config.console.incidents.failing import FAILED_SINCE, INTERMITTENT, FailingThings
from config.console.incidents.failure_rates import Failing
from config.console.parts.html import format_html
from config.console.parts.incident_words import acknowledged, muted
from config.console.parts.links import counted, link, listing, page
from config.console.parts.moments import appointment
from config.console.parts.sections import Cell
from config.console.runs.last_runs import LastRuns, Strip
from config.console.runs.words import first_line
from runs.db.sql import fetch
from runs.incidents.cause import OTHER
from runs.incidents.signs.open_incidents import INCIDENTS
from runs.incidents.tell import words_of
from runs.models import Incident
from runs.sign import BAD, Problem
from triggers.models import Decision, Trigger

MOST = 12
NO_WORD = re.compile(r"\W+")
COVERED = 200  # last runs of an incident that are looked at
HELD = 1_000  # held events of a trigger that are counted
ELSEWHERE = {
    "paused",
    INCIDENTS,
    "trigger-paused",
    "paused-triggers",
    "uncertain",
    "stopped",
}  # rows or banners of their own
COVERED_RUNS = """
SELECT incident.id, newest.upto, newest.failed, newest.covered FROM unnest(%(ids)s::bigint[]) incident (id)
CROSS JOIN LATERAL (
  SELECT max(covered.id) AS upto, count(*) FILTER (WHERE run.status = 'failed') AS failed, count(*) AS covered
  FROM (SELECT id, run_id FROM runs_coveredrun WHERE incident_id = incident.id ORDER BY id DESC LIMIT %(most)s::int) covered
  JOIN runs_run run ON run.id = covered.run_id) newest
"""
# The page on which a problem is seen and ended, by the beginning of its kind: its list, and whether that is searched by the name.
PLACES = {
    "trigger-": "triggers_trigger",
    "source": "triggers_source",
    "refusing": "triggers_source",
    "poison": "triggers_source",
    "table": "triggers_source",
    "rotation": "triggers_source",
    "unused-secret": "triggers_source",
    "switch": "triggers_switch",
    "subscription": "triggers_subscription",
    "connection": "runs_connection",
    "prompt-agent": "agents_promptagent",
    "budget": "runs_budget",
    "schedules": "triggers_schedule",
    "unreachable": "runs_recipient",
    "unknown-recipient": "runs_recipient",
    "deliveries": "runs_delivery",
    "unknown-deliveries": "runs_delivery",
    "replay": "triggers_replay",
}
SEARCHED = {"triggers_trigger", "triggers_source", "triggers_switch", "runs_connection"}


@dataclass(frozen=True, kw_only=True)
class Act:
    """A button that posts one value."""

    verb: str
    label: str
    value: str
    about: str = ""
    is_primary: bool = False

    @property
    def url(self) -> str:
        return reverse("home_act", args=[self.verb])


@dataclass(frozen=True, kw_only=True)
class Cause:
    """`is_bad`: it fails until a person acts; else it fails now and then, or is late. `is_muted`: it does not count."""

    key: str
    name: Cell
    said: str
    is_bad: bool
    label: str
    text: str
    is_muted: bool = False
    since: datetime | None = None
    facts: Sequence[Cell] = ()
    strip: Strip | None = None
    rate: Cell = ""
    deploy: Deploy | None = None
    acts: Sequence[Act] = field(default_factory=tuple)
    remedy: str = ""

    @property
    def id(self) -> str:
        return "cause-" + NO_WORD.sub("-", self.key)

    @property
    def since_shown(self) -> Cell:
        return appointment(self.since) if self.since else ""

    @property
    def deploy_shown(self) -> Cell:
        if not self.deploy or not self.since:
            return ""
        return f"began {in_words(self.since - self.deploy.at)} after version {self.deploy.short}"


@dataclass(frozen=True)
class Covered:
    """Of the last runs that an incident covers: the last failure, how many are still failed, and how many they are."""

    upto: int
    failed: int
    runs: int


@dataclass(frozen=True)
class Rights:
    """What the reader may do."""

    requeue: bool
    pause: bool
    acknowledge: bool
    mute: bool


def paused_triggers() -> list[Trigger]:
    return list(Trigger.objects.filter(enabled=True, paused_at__isnull=False).order_by("paused_at")[:MOST])


def causes(
    found: FailingThings, paused: Sequence[Trigger], problems: Sequence[Problem],
    runs: LastRuns, deployed: Sequence[Deploy], rights: Rights,
) -> list[Cause]:  # fmt: skip
    """The bad ones first, the muted ones last."""
    incidents = [*found.incidents, *found.muted]
    by_slug = {one.slug: one for one in paused}
    covered = _covered(incidents)
    shown = [_of_incident(one, by_slug, runs, deployed, rights, covered) for one in incidents]
    shown += [_of_runs(one, runs, deployed, rights, without_muted=bool(found.muted)) for one in found.others]
    named = {one.subject for one in found.incidents if one.kind == Incident.Kind.TRIGGER}
    held = _held(paused)
    shown += [_of_pause(one, held, runs, deployed, rights) for one in paused if one.slug not in named]
    refused = {one.subject for one in incidents if one.kind == Incident.Kind.SOURCE}
    shown += [_of_problem(one) for one in problems if _is_shown(one, refused)]
    return sorted(shown, key=lambda one: (one.is_muted, not one.is_bad))


def _is_shown(problem: Problem, refused: set[str]) -> bool:
    _, _, name = problem.name.partition(":")
    return problem.kind not in ELSEWHERE and not (problem.kind == "refusing" and name in refused)


def _of_incident(
    one: Incident, paused: dict[str, Trigger], runs: LastRuns, deployed: Sequence[Deploy], rights: Rights,
    covered: Mapping[int, Covered],
) -> Cause:  # fmt: skip
    thing, failures = words_of(one)
    # A pause is a cause of its own beside a muted one.
    trigger = paused.get(one.subject) if one.kind == Incident.Kind.TRIGGER and not one.is_muted else None
    strip = _strip(one.kind, one.subject, runs)
    label = "paused" if trigger else "fails" if one.is_open else FAILED_SINCE if one.closed_by else INTERMITTENT
    acts = [*_requeue(one, covered, rights), *(_resume(trigger, rights) if trigger else []), *_calm(one, rights)]
    known = [_free("acknowledged {}", acknowledged(one))] if one.acknowledged_at else []
    known += [_free("{}", muted(one))] if one.is_muted else []
    return Cause(
        key=f"incident-{one.pk}",
        name=link(page("runs_incident", one.pk), thing),
        said=f"{one.name} {label}",
        is_bad=(one.is_open and not one.is_muted) or trigger is not None,
        label="muted" if one.is_muted else label,
        text=one.cause,
        is_muted=one.is_muted,
        since=one.first_at,
        facts=[_failures(one, failures, covered), *known],
        strip=strip,
        rate=_rate(strip),
        deploy=deploy_before(deployed, one.first_at),
        acts=acts,
    )


def _free(words: str, of: Cell) -> Cell:
    """What people wrote, and times."""
    return format_html(f'<span class="home-free">{words}</span>', of)


def _of_runs(one: Failing, runs: LastRuns, deployed: Sequence[Deploy], rights: Rights, *, without_muted: bool) -> Cause:
    name = f"Trigger {one.trigger}" if one.trigger else f"Agent {one.agent}"
    strip = runs.of_trigger(one.trigger) if one.trigger else runs.of_spawned(one.agent)
    failed = _failed_runs(one.trigger, one.agent, without_muted=without_muted)
    label = INTERMITTENT if strip.rate.failed < strip.rate.runs else "failed"
    return Cause(
        key=name,
        name=link(failed, name),
        said=f"{one.trigger or one.agent} {label}",
        is_bad=False,
        label=label,
        text=first_line(one.error),
        since=one.first_at,
        facts=[counted(failed, one.count, f"{one.count:,} failed run{'' if one.count == 1 else 's'} of the last day")],
        strip=strip,
        rate=_rate(strip),
        deploy=deploy_before(deployed, one.first_at),
        acts=_requeue_lately(one, without_muted=without_muted) if rights.requeue and one.trigger else [],
    )


def _of_pause(
    one: Trigger, held: dict[object, int], runs: LastRuns, deployed: Sequence[Deploy], rights: Rights
) -> Cause:
    strip, count = runs.of_trigger(one.slug), held.get(one.pk, 0)
    words = f"{count:,}{'+' if count >= HELD else ''} event{'' if count == 1 else 's'} held"
    facts = [counted(listing("triggers_event", held=one.slug), count, words)] if count else []
    return Cause(
        key=f"pause-{one.slug}",
        name=link(page("triggers_trigger", one.pk), f"Trigger {one.slug}"),
        said=f"{one.slug} is paused",
        is_bad=True,
        label="paused",
        text=one.paused_reason or "Its events are held until it is resumed.",
        since=one.paused_at,
        facts=facts,
        strip=strip if strip.runs else None,
        rate=_rate(strip),
        deploy=deploy_before(deployed, one.paused_at) if one.paused_at and one.failures_in_a_row else None,
        acts=_resume(one, rights),
    )


def _of_problem(problem: Problem) -> Cause:
    text = problem.text.replace("`", "")
    first, _, rest = text.partition(". ")
    return Cause(
        key=problem.name,
        name=link(_place(problem), first.rstrip(".")),
        said=first.rstrip("."),
        is_bad=problem.severity == BAD,
        label="problem" if problem.severity == BAD else "warning",
        text=rest,
        remedy=problem.remedy.replace("`", ""),
    )


def _place(problem: Problem) -> str:
    _, _, name = problem.name.partition(":")
    for beginning, noun in PLACES.items():
        if problem.kind.startswith(beginning):
            return listing(noun, **({"q": name} if name and noun in SEARCHED else {}))
    return reverse("admin:runs_queue_processes")


def _strip(kind: str, subject: str, runs: LastRuns) -> Strip | None:
    found = {Incident.Kind.TRIGGER.value: runs.of_trigger, Incident.Kind.AGENT.value: runs.of_spawned}.get(kind)
    strip = found(subject) if found else None
    return strip if strip and strip.runs else None


def _rate(strip: Strip | None) -> Cell:
    if strip is None or not strip.rate.runs:
        return ""
    return counted(strip.rate_url, strip.rate.runs, f"{strip.rate.in_short} failed")


def _failed_runs(trigger: str, agent: str, *, without_muted: bool) -> str:
    others = {"muted": "no"} if without_muted else {}
    return listing("runs_run", status__exact="failed", finished="24h", **others, **_whose(trigger, agent))


def _whose(trigger: str, agent: str) -> dict[str, str]:
    """Exactly the runs of the trigger, which a search would not find alone; else those of the agent that other runs spawned."""
    return {"trigger__exact": trigger} if trigger else {"trigger__exact": "", "agent": agent}


def _failures(one: Incident, failures: str, covered: Mapping[int, Covered]) -> Cell:
    """The runs that it covers; where it covers none, such as that of a source, its failures."""
    runs = covered[one.pk].runs if one.pk in covered else 0
    if not runs:
        return counted(page("runs_incident", one.pk), one.count, f"{one.count:,} {failures}")
    words = f"{runs:,}{'+' if runs >= COVERED else ''} failed run{'' if runs == 1 else 's'}"
    return counted(listing("runs_run", incident=one.pk), runs, words)


def _requeue(one: Incident, covered: Mapping[int, Covered], rights: Rights) -> Iterator[Act]:
    found = covered.get(one.pk)
    if rights.requeue and found and found.failed:
        label = f"Requeue {found.failed}{'+' if found.failed >= COVERED else ''}"
        yield Act(verb="requeue", label=label, value=f"{one.pk}:{found.upto}", about=one.name, is_primary=True)


def _requeue_lately(one: Failing, *, without_muted: bool) -> list[Act]:
    """Not beside a muted cause, whose runs might be among them."""
    value = f"{one.trigger}:at:{one.last_at.isoformat()}"
    act = Act(verb="requeue-lately", label=f"Requeue {one.count:,}", value=value, about=one.trigger, is_primary=True)
    return [] if without_muted else [act]


def _calm(one: Incident, rights: Rights) -> Iterator[Act]:
    value = str(one.pk)
    if rights.acknowledge and not one.acknowledged_at and not one.is_muted:
        yield Act(verb="acknowledge", label="Acknowledge", value=value, about=one.name)
    if rights.mute and one.is_muted:
        yield Act(verb="unmute", label="End the mute", value=value, about=one.name)
    elif rights.mute and one.cause != OTHER:
        yield Act(verb="mute", label="Mute until the next version", value=value, about=one.name)


def _covered(incidents: Sequence[Incident]) -> dict[int, Covered]:
    ids = [one.pk for one in incidents]
    found = fetch(COVERED_RUNS, {"ids": ids, "most": COVERED}) if ids else []
    return {pk: Covered(upto, failed, runs) for pk, upto, failed, runs in found}


def _resume(trigger: Trigger, rights: Rights) -> list[Act]:
    return [Act(verb="resume", label="Resume", value=str(trigger.pk), about=trigger.slug)] if rights.pause else []


def _held(paused: Sequence[Trigger]) -> dict[object, int]:
    found: dict[object, int] = {}
    for one in paused:
        rows = Decision.objects.filter(trigger=one.pk, outcome=Decision.Outcome.HELD).order_by()[:HELD]
        found[one.pk] = rows.aggregate(count=Count("pk"))["count"]
    return found

"""What the search in the header finds: a few hits of each kind that the reader may see, each kind at a bounded cost."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db.models import Q
from django.http import HttpRequest
from django.urls import reverse

from agents.registry import all_agents
from config.console.navigation import tabs_named
from config.console.parts.links import listing, page
from config.console.parts.moments import distance
from config.console.runs.find import find_events, find_runs
from config.console.runs.input_and_result import SEES_EVENTS
from config.console.runs.subjects import subjects_of
from config.console.runs.words import first_line
from config.documentation.console_pages import docs_url
from config.documentation.pages import pages
from config.documentation.search import search as search_docs
from runs.models import Run
from triggers.models import Event, Schedule, Source, Trigger

SHORTEST, LONGEST = 2, 200  # characters of a search
SHOWN = 6  # hits of a kind
CANDIDATES = 1_000  # names of triggers, sources and schedules that are looked through
Row = TypeVar("Row", bound=tuple[Any, ...])


@dataclass(frozen=True, kw_only=True)
class Hit:
    title: str
    url: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """`more_url`: the list with all of them; empty: there is no such list, or there are no more."""

    title: str
    hits: Sequence[Hit]
    more_url: str = ""


def find(request: HttpRequest, text: str) -> list[Kind]:
    term = text.strip()[:LONGEST].replace("\0", "")
    if len(term) < SHORTEST:
        return []
    kinds: list[tuple[str, str, Callable[[str], Iterable[Hit]], str]] = [
        ("Pages", "", lambda term: _pages(request, term), ""),
        ("Agents", "runs.agentstop", _agents, ""),
        ("Triggers", "triggers.trigger", _triggers, "triggers_trigger"),
        ("Schedules", "triggers.schedule", _schedules, "triggers_schedule"),
        ("Sources", "triggers.source", _sources, "triggers_source"),
        ("Runs", "runs.run", lambda term: _runs(request, term), "runs_run"),
        ("Events", "triggers.event", _events, "triggers_event"),
        ("Documentation", "", _docs, ""),
    ]
    found = []
    for title, model, of, noun in kinds:
        if model and not _may_see(request, model):
            continue
        if hits := [*of(term)][: SHOWN + 1]:
            more = listing(noun, q=term) if noun and len(hits) > SHOWN else ""
            found.append(Kind(title=title, hits=hits[:SHOWN], more_url=more))
    return found


def _pages(request: HttpRequest, term: str) -> Iterable[Hit]:
    return [Hit(title=tab.title, url=tab.link) for tab in tabs_named(request, term)]


def _agents(term: str) -> Iterable[Hit]:
    of_triggers = Trigger.objects.filter(agent__icontains=term).order_by("agent").values_list("agent", flat=True)
    names = {
        *of_triggers.distinct()[: SHOWN + 1],
        *(one.name for one in all_agents() if term.lower() in one.name.lower()),
    }
    return [
        Hit(title=name, url=reverse("admin:runs_agentstop_change", args=[name]))
        for (name,) in _best_first(term, [(name,) for name in names])
    ]


def _triggers(term: str) -> Iterable[Hit]:
    found = Trigger.objects.filter(slug__icontains=term).order_by("slug").values_list("slug", "pk", "agent")
    return [
        Hit(title=slug, url=page("triggers_trigger", pk), note="" if agent == slug else f"starts {agent}")
        for slug, pk, agent in _best_first(term, found[:CANDIDATES])
    ]


def _schedules(term: str) -> Iterable[Hit]:
    found = Schedule.objects.filter(trigger__slug__icontains=term).order_by("trigger__slug")
    rows = found.values_list("trigger__slug", "pk")[:CANDIDATES]
    return [Hit(title=slug, url=page("triggers_schedule", pk)) for slug, pk in _best_first(term, rows)]


def _sources(term: str) -> Iterable[Hit]:
    found = Source.objects.filter(Q(slug__icontains=term) | Q(kind__icontains=term)).order_by("slug")
    rows = found.values_list("slug", "pk", "kind")[:CANDIDATES]
    return [Hit(title=slug, url=page("triggers_source", pk), note=kind) for slug, pk, kind in _best_first(term, rows)]


def _runs(request: HttpRequest, term: str) -> Iterable[Hit]:
    found = find_runs(term, sees_events=request.user.has_perm(SEES_EVENTS))
    ids = sorted(found, reverse=True)[: SHOWN + 1]
    runs = Run.objects.only("id", "agent", "status", "event_ids", "created_at").filter(pk__in=ids).order_by("-pk")
    subjects = subjects_of(runs)
    return [
        Hit(
            title=f"{run.agent} · {subjects[run.pk]}" if run.pk in subjects else run.agent,
            url=page("runs_run", run.pk),
            note=f"{run.status}, {distance(run.created_at)}",
        )
        for run in runs
    ]


def _events(term: str) -> Iterable[Hit]:
    ids = sorted(find_events(term), reverse=True)[: SHOWN + 1]
    events = Event.objects.only("id", "type", "subject", "received_at").filter(pk__in=ids).order_by("-pk")
    return [
        Hit(
            title=f"{one.type} · {first_line(one.subject)}" if one.subject else one.type,
            url=page("triggers_event", one.pk),
            note=f"received {distance(one.received_at)}",
        )
        for one in events
    ]


def _docs(term: str) -> Iterable[Hit]:
    return [
        Hit(
            title=found.page.title if found.title == found.page.title else f"{found.page.title} › {found.title}",
            url=docs_url(f"{found.page.slug}#{found.anchor}" if found.page.slug else ""),
            note=found.excerpt,
        )
        for found in search_docs(pages().by_slug.values(), term)[:SHOWN]
    ]


def _best_first(term: str, rows: Iterable[Row]) -> list[Row]:
    """By their names, the first of each row: the name itself, then names that begin with the term, then the others."""
    lower = term.lower()
    return sorted(rows, key=lambda row: (row[0].lower() != lower, not row[0].lower().startswith(lower), row[0]))


def _may_see(request: HttpRequest, model: str) -> bool:
    app, _, name = model.partition(".")
    return any(request.user.has_perm(f"{app}.{verb}_{name}") for verb in ("view", "change"))

"""The first page: what needs a person, the last 24 hours, the agents, the sources, and what will wake next."""

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.template.loader import render_to_string
from django.urls import reverse

from config.console.home.agents import Row, agent_rows, known_agents
from config.console.home.causes import MOST as CAUSES
from config.console.home.causes import Cause, Rights, causes, paused_triggers
from config.console.home.changes import Changes, changes
from config.console.home.chart import Chart, chart_of
from config.console.home.coming import SHOWN as COMING
from config.console.home.coming import coming_up, next_wakes
from config.console.home.day import Day, Figure, figures, read_day
from config.console.home.deploys import deploys
from config.console.home.doors import SHOWN as DOORS
from config.console.home.doors import Door, doors
from config.console.home.first import First, first
from config.console.home.now import Count, under_way
from config.console.home.span import spans
from config.console.home.verdict import Verdict, verdict
from config.console.home.waiting import Waiting, waiting
from config.console.incidents.failing import FailingThings, failing_things
from config.console.operations.upcoming import subject_of
from config.console.parts.browser_zone import zone_shown
from config.console.parts.links import counted, listing
from config.console.parts.moments import appointment
from config.console.parts.sections import Cell
from config.console.runs.last_runs import LastRuns
from config.health.problems import problems
from config.health.situation import read_situation
from runs.db.sql import database_now
from runs.models import Incident, Run

TEMPLATE = "admin/console/home.html"
OFTEN, SOON = 10_000, 2_000  # milliseconds between two looks; who waits for a first run looks often
PERMISSIONS = ("runs.view_run", "triggers.view_event", "triggers.view_trigger")


@dataclass(frozen=True, kw_only=True)
class Home:
    verdict: Verdict
    causes: list[Cause]
    waiting: Waiting
    figures: list[Figure]
    chart: Chart
    failed_url: str
    failed_count: int
    day: Day
    agents: list[Row]
    agents_count: int
    doors: list[Door]
    doors_count: int
    coming: list[tuple[Cell, Cell, str]]
    changes: list[Changes]
    first: First | None
    now: list[Count]


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """The context of the index page, limited to what the user may see."""
    if not request.user.has_perms(PERMISSIONS):
        return context
    home = read_home(request)
    body = _rendered(home)
    live = {"url": reverse("home"), "etag": _etag(body), "every": SOON if home.first else OFTEN}
    return {**context, "title": "Overview", "home": body, "live": live}


def home_fragment(request: HttpRequest) -> HttpResponse:
    """What the page asks for while it is seen; 304 if nothing on it has changed."""
    if not request.user.has_perms(PERMISSIONS):
        raise PermissionDenied
    body = _rendered(read_home(request))
    etag = _etag(body)
    # A server that compresses the answer makes the tag a weak one.
    if etag in request.headers.get("If-None-Match", ""):
        return HttpResponseNotModified(headers={"ETag": etag})
    return HttpResponse(body, headers={"ETag": etag, "Cache-Control": "private, no-cache"})


def _rendered(home: Home) -> str:
    # Without the request: a token of a form would make each answer another one. The forms take that of the page.
    return render_to_string(TEMPLATE, {"home": home})


def _etag(body: str) -> str:
    return f'"{sha256(body.encode()).hexdigest()[:32]}"'


def read_home(request: HttpRequest) -> Home:
    may, now = request.user.has_perm, database_now()
    day = read_day(*spans(now))
    known, paused, failing, deployed = known_agents(day), paused_triggers(), failing_things(CAUSES), deploys()
    situation = read_situation()
    runs = LastRuns([*_slugs(failing), *(one.slug for one in paused)], known.triggers)
    rights = Rights(
        requeue=may("runs.requeue_run"),
        pause=may("triggers.pause_trigger"),
        acknowledge=may("runs.acknowledge_incident"),
        mute=may("runs.mute_incident"),
    )
    are_cut = max(sum(one.is_open for one in failing.incidents), len(paused)) >= CAUSES
    found = causes(failing, paused, problems(situation), runs, deployed, rights)
    waits = waiting(
        may_see_approvals=may("runs.view_approval"),
        may_decide=may("runs.decide_approval"),
        may_see_mail=may("runs.view_delivery"),
    )
    ahead = coming_up(request, now) if may("triggers.view_schedule") else []
    sources = doors(now) if may("triggers.view_source") else []
    return Home(
        verdict=verdict(situation, found, waits, None if found else _last_failure(), are_cut=are_cut),
        causes=found,
        waiting=waits,
        figures=figures(day, _incidents(len(failing.incidents))),
        chart=chart_of(day, deployed, zone_shown(request)),
        failed_url=day.span.runs(status__exact="failed"),
        failed_count=day.number(day.today, "failed"),
        day=day,
        agents=agent_rows(known, day, runs, next_wakes(ahead)),
        agents_count=known.count,
        doors=sources[:DOORS],
        doors_count=len(sources),
        coming=[
            (appointment(one.at), subject_of(one), "" if one.agent == one.name else one.agent) for one in ahead[:COMING]
        ],
        changes=changes() if may("runs.view_auditentry") else [],
        first=first(may_fire=may("triggers.fire_trigger") and may("triggers.change_source")),
        now=under_way(),
    )


def _incidents(count: int) -> Cell:
    """How many incidents fail, muted ones left out; empty if there is none."""
    words = f"{count:,}{'+' if count >= CAUSES else ''} incident{'' if count == 1 else 's'}"
    return counted(listing("runs_incident", status="failing"), count, words) if count else ""


def _slugs(failing: FailingThings) -> list[str]:
    incidents = [*failing.incidents, *failing.muted]
    of_incidents = [one.subject for one in incidents if one.kind == Incident.Kind.TRIGGER]
    return [*of_incidents, *(one.trigger for one in failing.others if one.trigger)]


def _last_failure() -> datetime | None:
    return Run.objects.filter(status="failed").order_by("-id").values_list("finished_at", flat=True).first()

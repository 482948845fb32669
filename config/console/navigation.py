"""The sidebar, which follows the path of a wake, and the tabs above the pages of each of its entries."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db.models import Model
from django.http import HttpRequest
from django.urls import get_script_prefix, reverse
from django.utils.functional import SimpleLazyObject
from django.utils.text import capfirst

BADGES = "config.console.parts.inboxes"
STATUSES = ("failed", "uncertain")


@dataclass(frozen=True)
class Tab:
    """`model`: who may see its rows may see the page. `roots`: what the addresses of its pages begin with. `status`: that of the runs in
    the list, if it is of runs."""

    title: str
    link: str
    model: str = ""
    roots: tuple[str, ...] = ()
    status: str | None = None

    def is_allowed(self, request: HttpRequest) -> bool:
        app, _, model = self.model.partition(".")
        return not model or any(request.user.has_perm(f"{app}.{verb}_{model}") for verb in ("view", "change"))

    def is_shown(self, request: HttpRequest) -> bool:
        status = request.GET.get("status__exact", "")
        given = status if status in STATUSES else ""
        return request.path == self.link.partition("?")[0] and self.status in (None, given)


@dataclass(frozen=True)
class Section:
    """An entry of the sidebar. It leads to the first of its tabs that a person may see."""

    icon: str
    tabs: tuple[Tab, ...]
    title: str = ""
    badge: str = ""

    def entry(self) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "title": self.title or self.tabs[0].title,
            "icon": self.icon,
            "link": self._link,
            "permission": lambda request: any(self._allowed(request)),
            "active": self._is_active,
        }
        return {**entry, "badge": f"{BADGES}.{self.badge}"} if self.badge else entry

    def _is_active(self, request: HttpRequest) -> bool:
        roots = (root for tab in self.tabs for root in tab.roots)
        return request.path == self.tabs[0].link or any(request.path.startswith(root) for root in roots)

    def _link(self, request: HttpRequest) -> str:
        return next(self._allowed(request), self.tabs[0]).link

    def _allowed(self, request: HttpRequest) -> Iterator[Tab]:
        return (tab for tab in self.tabs if tab.is_allowed(request))


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The groups of the sidebar, for unfold."""
    return [
        {"title": title, "separator": bool(title), "items": [section.entry() for section in sections]}
        for title, sections in _groups(get_script_prefix()).items()
    ]


def tabs(request: HttpRequest) -> dict[str, Any]:
    """A context processor; only the console's templates evaluate it."""
    return {
        "console_tabs": SimpleLazyObject(lambda: _tabs_of(request)),
        "console_place": SimpleLazyObject(lambda: _place_of(request)),
    }


def _place_of(request: HttpRequest) -> list[dict[str, Any]]:
    """The entry of the sidebar, and its tab, that a page belongs to."""
    fitting = [
        (len(root), section, tab)
        for sections in _groups(get_script_prefix()).values()
        for section in sections
        for tab in section.tabs
        for root in tab.roots
        if request.path.startswith(root)
    ]
    if not fitting:
        return []
    _, section, tab = max(fitting, key=lambda one: one[0])
    first = section.entry()
    place = [{"title": first["title"], "link": section.tabs[0].link}]
    if tab.link.partition("?")[0] != section.tabs[0].link.partition("?")[0]:
        place.append({"title": tab.title, "link": tab.link})
    return [{**one, "is_here": request.path == one["link"].partition("?")[0]} for one in place]


def tabs_named(request: HttpRequest, term: str) -> list[Tab]:
    """The pages of the sidebar and of its tabs with this in their titles, of those that a person may see."""
    every = [tab for sections in _groups(get_script_prefix()).values() for section in sections for tab in section.tabs]
    return [tab for tab in every if term.lower() in tab.title.lower() and tab.is_allowed(request)]


def _tabs_of(request: HttpRequest) -> list[dict[str, Any]]:
    for sections in _groups(get_script_prefix()).values():
        for section in sections:
            if len(section.tabs) > 1 and any(tab.is_shown(request) for tab in section.tabs):
                return [
                    {
                        "title": tab.title,
                        "link": tab.link,
                        "active": tab.is_shown(request),
                        "has_permission": tab.is_allowed(request),
                    }
                    for tab in section.tabs
                ]
    return []


def _list(title: str, model: str, *, of: str = "", query: str = "", status: str | None = None) -> Tab:
    """The list of a model. `of`: the model whose rights are asked, if that is another one."""
    link = reverse(f"admin:{model.replace('.', '_')}_changelist")
    return Tab(title, link + query, of or model, (link,), status)


def _page(title: str, name: str, model: str = "", *, of_pages: tuple[str, ...] = ()) -> Tab:
    """A page that is no list, and the addresses of others that belong to it, below that of the admin."""
    link = reverse(name)
    return Tab(title, link, model, (link, *(reverse("admin:index") + page for page in of_pages)))


# Each page builds the sidebar: its links are resolved once, for each prefix of the script.
@cache
def _groups(prefix: str) -> dict[str, list[Section]]:
    home = reverse("admin:index")
    return {
        "": [
            Section("monitor_heart", (Tab("Overview", home),)),
            Section("inbox", (_page("Inbox", "inbox"),), badge="unread_badge"),
            Section(
                "approval",
                (_list("Approvals", "runs.approval"), _page("Chat accounts", "chat_accounts", "runs.approval")),
                badge="approvals_badge",
            ),
            Section(
                "crisis_alert",
                (_list("Incidents", "runs.incident"), _list("Alarms", "runs.alarm")),
                badge="incidents_badge",
            ),
        ],
        "What wakes agents": [
            Section(
                "bolt",
                (
                    _list("Events", "triggers.event"),
                    _list("Replays", "triggers.replay"),
                    _list("Subscriptions", "triggers.subscription"),
                    _list("Event deliveries", "triggers.eventdelivery"),
                ),
            ),
            Section("rule", (_list("Triggers", "triggers.trigger"),)),
            Section(
                "schedule",
                (
                    _list("Schedules", "triggers.schedule"),
                    _page("What will wake next", "coming", "triggers.schedule"),
                    _list("Backfills", "triggers.backfill"),
                    _list("Exclusion calendars", "triggers.exclusioncalendar"),
                    _page("Why did this not run?", "admin:triggers_schedule_why_search", "triggers.schedule"),
                ),
            ),
            Section(
                "input",
                (_list("Sources", "triggers.source"), _list("Switches", "triggers.switch", of="triggers.source")),
            ),
        ],
        "What they do": [
            Section(
                "play_circle",
                (
                    _list("All runs", "runs.run", status=""),
                    _list("Failed", "runs.run", query="?status__exact=failed", status="failed"),
                    _list("Uncertain", "runs.run", query="?status__exact=uncertain", status="uncertain"),
                    _page("Overnight", "overnight", "runs.run"),
                ),
                title="Runs",
                badge="uncertain_badge",
            ),
            Section(
                "smart_toy",
                (
                    _page("Agents", "admin:runs_agentstop_agents", "runs.agentstop", of_pages=("runs/agentstop/",)),
                    _list("Prompt agents", "agents.promptagent"),
                    _list("Checklists", "agents.checklist"),
                    _list("Sessions", "agents.session"),
                    _list("Memory", "agents.memorynote"),
                ),
            ),
            Section(
                "savings",
                (
                    _list("Budgets", "runs.budget"),
                    _page("Spent today", "admin:runs_budget_spending", "runs.budget"),
                    _list("Model prices", "runs.modelprice"),
                ),
            ),
        ],
        "Operations": [
            Section(
                "memory",
                (
                    _page(
                        "Processes",
                        "admin:runs_queue_processes",
                        "runs.worker",
                        of_pages=("runs/queue/", "runs/worker/"),
                    ),
                    _list("Other periodic tasks", "django_celery_beat.periodictask"),
                    _list("Task results", "django_celery_results.taskresult"),
                ),
            ),
            Section(
                "notifications",
                (
                    _list("Notifications", "runs.notification"),
                    _list("Deliveries", "runs.delivery"),
                    _list("Recipients", "runs.recipient"),
                    _list("Groups", "runs.recipientgroup"),
                ),
            ),
            Section("link", (_list("Connections", "runs.connection"),)),
            Section("history", (_list("Audit log", "runs.auditentry"),)),
            Section(
                "key",
                (
                    _list("API tokens", "triggers.apitoken"),
                    *_people(),
                    _page("API reference", "api_docs", "triggers.apitoken"),
                ),
                title="Access",
            ),
        ],
    }


def _people() -> list[Tab]:
    """The users and groups. A user model of the team's own is here if it has pages in this admin."""
    shown: list[type[Model]] = [get_user_model(), Group]
    return [
        _list(capfirst(str(model._meta.verbose_name_plural)), model._meta.label_lower)
        for model in shown
        if admin.site.is_registered(model)
    ]

"""UNFOLD: names, colours and the sidebar, which follows the path of a wake."""

from collections.abc import Callable
from functools import cache
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Model
from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import get_script_prefix, reverse
from django.utils.text import capfirst


def _item(title: str, icon: str, model: str, query: str = "", **more: Any) -> dict[str, Any]:
    app, name = model.split(".")
    link = reverse(f"admin:{app}_{name}_changelist") + query
    return {"title": title, "icon": icon, "link": link, "permission": _may_see(app, name), **more}


def _may_see(app: str, model: str) -> Callable[[HttpRequest], bool]:
    return lambda request: any(request.user.has_perm(f"{app}.{verb}_{model}") for verb in ("view", "change"))


def _runs(title: str, icon: str, status: str = "", **more: Any) -> dict[str, Any]:
    """The list of runs, of one status or of all."""
    query = f"?status__exact={status}" if status else ""
    return _item(title, icon, "runs.run", query, active=_on_runs(status), **more)


def _on_runs(status: str) -> Callable[[HttpRequest], bool]:
    # One list under several names: which is meant stands in the query.
    runs = reverse("admin:runs_run_changelist")

    def is_active(request: HttpRequest) -> bool:
        shown = request.GET.get("status__exact")
        named = shown if shown in ("failed", "uncertain") else ""
        return request.path.startswith(runs) and named == status

    return is_active


def _processes() -> dict[str, Any]:
    return {
        "title": "Processes",
        "icon": "memory",
        "link": reverse("admin:runs_queue_processes"),
        "permission": _may_see("runs", "worker"),
        "active": lambda request: request.path_info.startswith(("/admin/runs/queue/", "/admin/runs/worker/")),
    }


def _agents() -> dict[str, Any]:
    return {
        "title": "Agents",
        "icon": "smart_toy",
        "link": reverse("admin:runs_agentstop_agents"),
        "permission": _may_see("runs", "agentstop"),
        "active": lambda request: request.path_info.startswith("/admin/runs/agentstop/"),
    }


def _coming() -> dict[str, Any]:
    return {
        "title": "What will wake next",
        "icon": "upcoming",
        "link": reverse("coming"),
        "permission": _may_see("triggers", "schedule"),
    }


def _overnight() -> dict[str, Any]:
    return {
        "title": "What ran overnight",
        "icon": "bedtime",
        "link": reverse("overnight"),
        "permission": _may_see("runs", "run"),
    }


def _tab(title: str, link: str, model: str) -> dict[str, Any]:
    return {"title": title, "link": reverse(f"admin:{link}"), "permission": _may_see(*model.split("."))}


# Each page compares every link of the sidebar with every tab. Lazy links took a third of the time of a page.
@cache
def _tabs(prefix: str) -> list[dict[str, Any]]:
    """Tabs above lists; `prefix` is the script's, which links begin with."""
    return [
        {
            "models": ["triggers.event", "triggers.replay"],
            "items": [
                _tab("Events", "triggers_event_changelist", "triggers.event"),
                _tab("Replays", "triggers_replay_changelist", "triggers.replay"),
            ],
        },
        {
            "models": ["triggers.schedule", "triggers.backfill", "triggers.exclusioncalendar"],
            "items": [
                _tab("Schedules", "triggers_schedule_changelist", "triggers.schedule"),
                _tab("Backfills", "triggers_backfill_changelist", "triggers.backfill"),
                _tab("Exclusion calendars", "triggers_exclusioncalendar_changelist", "triggers.exclusioncalendar"),
                _tab("Why did this not run?", "triggers_schedule_why_search", "triggers.schedule"),
            ],
        },
        {
            "models": ["runs.notification", "runs.delivery", "runs.recipient", "runs.recipientgroup"],
            "items": [
                _tab("Notifications", "runs_notification_changelist", "runs.notification"),
                _tab("Deliveries", "runs_delivery_changelist", "runs.delivery"),
                _tab("Recipients", "runs_recipient_changelist", "runs.recipient"),
                _tab("Groups", "runs_recipientgroup_changelist", "runs.recipientgroup"),
            ],
        },
        {
            "models": ["triggers.subscription", "triggers.eventdelivery"],
            "items": [
                _tab("Subscriptions", "triggers_subscription_changelist", "triggers.subscription"),
                _tab("Deliveries", "triggers_eventdelivery_changelist", "triggers.eventdelivery"),
            ],
        },
        {
            "models": ["triggers.source", "triggers.switch"],
            "items": [
                _tab("Sources", "triggers_source_changelist", "triggers.source"),
                _tab("Switches", "triggers_switch_changelist", "triggers.source"),
            ],
        },
        {
            "models": ["runs.budget", "runs.modelprice"],
            "items": [
                _tab("Budgets", "runs_budget_changelist", "runs.budget"),
                _tab("Spent today", "runs_budget_spending", "runs.budget"),
                _tab("Model prices", "runs_modelprice_changelist", "runs.modelprice"),
            ],
        },
    ]


def _people() -> list[dict[str, Any]]:
    """The users and groups. A user model of the team's own is here if it has pages in this admin."""
    # Not at the top: the settings import this module.
    from django.contrib import admin
    from django.contrib.auth.models import Group

    user = get_user_model()
    shown: list[tuple[str, type[Model]]] = [("person", user), ("group", Group)]
    return [
        _item(capfirst(str(model._meta.verbose_name_plural)), icon, model._meta.label_lower)
        for icon, model in shown
        if admin.site.is_registered(model)
    ]


@cache
def _navigation(prefix: str) -> list[dict[str, Any]]:
    """Groups of the sidebar; `prefix` as in `_tabs`."""
    return [
        {
            "items": [
                {"title": "Overview", "icon": "monitor_heart", "link": reverse("admin:index")},
                {
                    "title": "Inbox",
                    "icon": "inbox",
                    "link": reverse("inbox"),
                    "badge": "config.console.parts.inboxes.unread_badge",
                },
            ]
        },
        {
            "title": "What wakes agents",
            "separator": True,
            "items": [
                _item("Events", "bolt", "triggers.event"),
                _item("Triggers", "rule", "triggers.trigger"),
                _item("Schedules", "schedule", "triggers.schedule"),
                _coming(),
                _item("Sources", "input", "triggers.source"),
            ],
        },
        {
            "title": "Agents without code",
            "separator": True,
            "items": [
                _item("Prompt agents", "edit_note", "agents.promptagent"),
            ],
        },
        {
            "title": "What they do",
            "separator": True,
            "items": [
                _runs("Runs", "play_circle"),
                _overnight(),
                _runs("Failed runs", "error", "failed"),
                _runs("Uncertain runs", "help", "uncertain", badge="config.console.parts.inboxes.uncertain_badge"),
                _item("Approvals", "approval", "runs.approval", badge="config.console.parts.inboxes.approvals_badge"),
                _item("Subscriptions", "output", "triggers.subscription"),
            ],
        },
        {
            "title": "Operations",
            "separator": True,
            "items": [
                _processes(),
                _item("Budgets", "savings", "runs.budget"),
                _agents(),
                _item("Checklists", "checklist", "agents.checklist"),
                _item(
                    "Incidents",
                    "crisis_alert",
                    "runs.incident",
                    badge="config.console.parts.inboxes.incidents_badge",
                ),
                _item("Sessions", "forum", "agents.session"),
                _item("Memory", "psychology", "agents.memorynote"),
                _item("Alarms", "notification_important", "runs.alarm"),
                _item("Notifications", "notifications", "runs.notification"),
                _item("Audit log", "history", "runs.auditentry"),
                _item("API tokens", "key", "triggers.apitoken"),
                _item("Other periodic tasks", "event_repeat", "django_celery_beat.periodictask"),
                _item("Task results", "fact_check", "django_celery_results.taskresult"),
            ],
        },
        {
            "title": "People",
            "separator": True,
            "items": _people(),
        },
        {
            "separator": True,
            "items": [{"title": "Documentation", "icon": "menu_book", "link": reverse("docs")}],
        },
    ]


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Wakeful",
    "SITE_HEADER": "Wakeful",
    "SITE_SUBHEADER": "config.console.parts.browser_zone.times_in",
    "SITE_SYMBOL": "wb_twilight",
    "SITE_URL": None,
    "SHOW_HISTORY": False,  # the audit log is the history
    "LOGIN": {"form": "config.console.access.login.LoginForm"},
    "SHOW_VIEW_ON_SITE": False,
    "BORDER_RADIUS": "6px",
    "DASHBOARD_CALLBACK": "config.console.operations.overview.dashboard",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("console/icon.svg")}],
    "STYLES": [lambda request: static("console/console.css")],
    "SCRIPTS": [lambda request: static("console/moments.js"), lambda request: static("console/regions.js")],
    "COLORS": {
        "primary": {
            "50": "oklch(97% .02 230)",
            "100": "oklch(94% .04 230)",
            "200": "oklch(88% .07 230)",
            "300": "oklch(80% .1 230)",
            "400": "oklch(71% .13 232)",
            "500": "oklch(62% .14 235)",
            "600": "oklch(54% .13 238)",
            "700": "oklch(47% .11 240)",
            "800": "oklch(40% .09 242)",
            "900": "oklch(35% .07 244)",
            "950": "oklch(27% .06 246)",
        }
    },
    "TABS": lambda request: _tabs(get_script_prefix()),
    "SIDEBAR": {"show_search": False, "navigation": lambda request: _navigation(get_script_prefix())},
}

"""Which page of the documentation describes which page of the console."""

from typing import NamedTuple

from django.contrib.auth import get_user_model
from django.urls import NoReverseMatch, reverse

from runs.users import pages_of

# Names of the console's addresses, or what they begin with: the page of the documentation.
PAGES = {
    "index": "console",
    "coming": "schedules#what-will-wake-next",
    "inbox": "notifications#the-inbox",
    "overnight": "notifications#what-ran-overnight",
    "agents_checklist": "heartbeats#checklists",
    "agents_memorynote": "sessions#memory",
    "agents_promptagent": "prompt-agents",
    "agents_session": "sessions",
    "auth": "access",
    "django_celery": "schedules#coming-from-django-celery-beat-and-going-back",
    "runs_agentstop": "agents",
    "runs_alarm": "observe#alarms",
    "runs_approval": "trouble#runs-that-need-a-person",
    "runs_auditentry": "access#logins",
    "runs_budget": "budgets",
    "runs_connection": "connections",
    "runs_delivery": "notifications#what-becomes-of-a-delivery",
    "runs_incident": "incidents",
    "runs_modelprice": "budgets#prices",
    "runs_notification": "notifications",
    "runs_queue": "trouble#pause-and-drain",
    "runs_queue_processes": "deploy#processes",
    "runs_queue_restored": "upgrade#back-up",
    "runs_recipient": "notifications#recipients",
    "runs_recipientgroup": "notifications#recipients",
    "runs_run": "trouble#look-at-a-run",
    "runs_worker": "deploy#processes",
    "triggers_apitoken": "api",
    "triggers_backfill": "schedules#backfill",
    "triggers_event": "events",
    "triggers_eventdelivery": "outbound",
    "triggers_exclusioncalendar": "schedules#policies",
    "triggers_replay": "events#replay",
    "triggers_schedule": "schedules",
    "triggers_schedule_why": "schedules#why-did-it-not-run",
    "triggers_source": "sources",
    "triggers_subscription": "outbound",
    "triggers_switch": "absence",
    "triggers_trigger": "agents#what-wakes-it",
}


class ConsolePage(NamedTuple):
    title: str
    url: str


# The page of the console that a page of the documentation leads back to; others lead to its first page.
TITLES = {
    "absence": ("Switches", "admin:triggers_switch_changelist"),
    "access": ("Users", "admin:{users}_changelist"),
    "agents": ("Agents", "admin:runs_agentstop_agents"),
    "api": ("API tokens", "admin:triggers_apitoken_changelist"),
    "brokers": ("Sources", "admin:triggers_source_changelist"),
    "budgets": ("Budgets", "admin:runs_budget_changelist"),
    "calendars": ("Sources", "admin:triggers_source_changelist"),
    "connections": ("Connections", "admin:runs_connection_changelist"),
    "databases": ("Sources", "admin:triggers_source_changelist"),
    "deploy": ("Processes", "admin:runs_queue_processes"),
    "events": ("Events", "admin:triggers_event_changelist"),
    "files": ("Sources", "admin:triggers_source_changelist"),
    "filters": ("Triggers", "admin:triggers_trigger_changelist"),
    "heartbeats": ("Checklists", "admin:agents_checklist_changelist"),
    "incidents": ("Incidents", "admin:runs_incident_changelist"),
    "metrics": ("Sources", "admin:triggers_source_changelist"),
    "notifications": ("Notifications", "admin:runs_notification_changelist"),
    "observe": ("Alarms", "admin:runs_alarm_changelist"),
    "outbound": ("Subscriptions", "admin:triggers_subscription_changelist"),
    "polling-and-mail": ("Sources", "admin:triggers_source_changelist"),
    "prompt-agents": ("Prompt agents", "admin:agents_promptagent_changelist"),
    "replication": ("Sources", "admin:triggers_source_changelist"),
    "schedules": ("Schedules", "admin:triggers_schedule_changelist"),
    "sessions": ("Sessions", "admin:agents_session_changelist"),
    "sources": ("Sources", "admin:triggers_source_changelist"),
    "trouble": ("Runs", "admin:runs_run_changelist"),
    "webhooks": ("Sources", "admin:triggers_source_changelist"),
}


def docs_url(page: str = "") -> str:
    """The address of a page of the documentation, such as `webhooks` or `files#object-stores`."""
    slug, hash, anchor = page.partition("#")
    return f"{reverse('docs_page', args=[slug]) if slug else reverse('docs')}{hash}{anchor}"


def docs_of_console(url_name: str) -> str:
    """The address of the page that describes this page of the console: of the longest name that fits."""
    fitting = [name for name in PAGES if url_name == name or url_name.startswith(f"{name}_")]
    return docs_url(PAGES[max(fitting, key=len)] if fitting else "console")


def console_page_of(slug: str) -> ConsolePage | None:
    if slug not in TITLES:
        return None
    title, name = TITLES[slug]
    try:
        return ConsolePage(title, reverse(name.format(users=pages_of(get_user_model()))))
    except NoReverseMatch:  # a user model of the team's own need not be in the admin
        return None

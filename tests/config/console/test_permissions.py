"""Every door of the console names a permission, and a viewer who knocks at each of them changes nothing."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import Client
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule
from django_celery_results.models import TaskResult

from runs.models import AgentStop, Queue
from tests.config.console.conftest import LogIn
from tests.support.console import make_one_of_each, unwritten

pytestmark = pytest.mark.django_db
PANELS = list(admin.site._registry.items())
# Pages on which a POST is read as a question: they show something and change nothing.
QUESTIONS = {
    "admin:agents_promptagent_checklist",  # leads there
    "admin:runs_agentstop_agents",
    "admin:runs_agentstop_change",
    "admin:runs_agentstop_changelist",
    "admin:runs_budget_spending",
    "admin:runs_queue_processes",
    "admin:runs_queue_restored",
    "admin:runs_queue_changelist",
    "admin:runs_queue_change",
    "admin:runs_run_compare",
    "admin:runs_run_entry",
    "admin:runs_run_live",
    "admin:triggers_event_attachment",
    "admin:triggers_schedule_preview",
    "admin:triggers_schedule_why",
    "admin:triggers_schedule_why_search",
    "admin:triggers_trigger_try_filter",
    "chat_accounts",
    "coming",
    "overnight",
}


def actions_of(panel: Any) -> Iterator[tuple[str, Any]]:
    """Django's list actions, and unfold's of lists, rows, details and forms."""
    for function, name, _ in panel._get_base_actions():
        yield name, function
    for declared in (panel.actions_list, panel.actions_row, panel.actions_detail, panel.actions_submit_line):
        for name in panel._extract_action_names(declared):
            yield name, getattr(panel, name)


@pytest.mark.parametrize(("model", "panel"), PANELS, ids=lambda one: getattr(one, "__name__", ""))
def test_every_action_names_a_permission(model: Any, panel: Any) -> None:
    nameless = [name for name, action in actions_of(panel) if not getattr(action, "allowed_permissions", None)]

    assert nameless == []


@pytest.mark.parametrize(("model", "panel"), PANELS, ids=lambda one: getattr(one, "__name__", ""))
def test_every_permission_that_an_action_names_exists(model: Any, panel: Any) -> None:
    named = {name for _, action in actions_of(panel) for name in action.allowed_permissions}
    codenames = Permission.objects.values_list("content_type__app_label", "codename")
    known = {f"{app}.{codename}" for app, codename in codenames}

    unknown = [one for one in named if one not in known and not hasattr(panel, f"has_{one}_permission")]

    assert unknown == []


def test_a_viewer_who_posts_to_every_page_and_action_changes_nothing() -> None:
    rows = one_of_every_model()
    client = as_viewer()
    before = contents_of_every_table()

    with unwritten():
        answers = {
            name: client.post(path, {"_form_submitted": "True", "post": "yes", "reason": "x", "_save": "1"}).status_code
            for name, path in pages(rows)
        }
        for _, panel in PANELS:
            for name, _ in actions_of(panel):
                list_of, row = f"admin:{noun_of(panel)}_changelist", rows[noun_of(panel)]
                client.post(reverse(list_of), {"action": name, "_selected_action": [str(row.pk)], "index": "0"})

    assert differences(before, contents_of_every_table()) == []
    allowed = {name for name, status in answers.items() if status not in (403, 405)}
    assert {name for name in allowed if not name.endswith(("_changelist", "_history"))} <= QUESTIONS


def test_without_any_permission_no_page_opens(log_in: LogIn) -> None:
    rows = one_of_every_model()
    client = log_in("auth.view_permission")

    answers = {name: client.get(path, follow=True).status_code for name, path in pages(rows)}

    assert {name for name, status in answers.items() if status != 403} == set()


def one_of_every_model() -> dict[str, Any]:
    """A row for every page, by its noun."""
    rows = make_one_of_each(1)
    every = IntervalSchedule.objects.create(every=1, period="hours")
    rows["django_celery_beat_periodictask"] = PeriodicTask.objects.create(name="mails", task="mails", interval=every)
    rows["runs_queue"] = Queue.objects.get_or_create(name="default")[0]
    rows["runs_agentstop"] = AgentStop.objects.create(agent="stopped", stopped_by="test")
    rows["auth_user"] = User.objects.create_superuser("root", password="x")
    rows["auth_group"] = Group.objects.get(name="viewer")
    made = (
        every,
        CrontabSchedule.objects.create(hour="4"),
        ClockedSchedule.objects.create(clocked_time=timezone.now()),
        SolarSchedule.objects.create(event="sunset", latitude=48, longitude=16),
        TaskResult.objects.create(task_id="1"),
    )
    return {**{f"{row._meta.app_label}_{row._meta.model_name}": row for row in made}, **rows}


def noun_of(panel: Any) -> str:
    return f"{panel.opts.app_label}_{panel.opts.model_name}"


def pages(rows: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The address of every named page of every panel, such as `admin:runs_run_change`."""
    for _, panel in PANELS:
        row = rows[noun_of(panel)]
        for name in sorted({pattern.name for pattern in panel.get_urls() if pattern.name}):
            for args in ([], [row.pk], [row.pk, "step"], [row.pk, 1]):
                try:
                    yield f"admin:{name}", reverse(f"admin:{name}", args=args)
                except NoReverseMatch:
                    continue
                break
            else:
                raise AssertionError(f"no address for {name}")
    for name in ("chat_accounts", "coming", "overnight"):
        yield name, reverse(name)


def as_viewer() -> Client:
    user = User.objects.create_user("a-viewer", password="x", is_staff=True)
    user.groups.add(Group.objects.get(name="viewer"))
    client = Client()
    client.force_login(user)
    return client


def contents_of_every_table() -> dict[str, str]:
    """A fingerprint of the rows of each table but that of the sessions, which every page may touch."""
    with connection.cursor() as cursor:
        tables = [name for name in connection.introspection.table_names(cursor) if name != "django_session"]
        found = {}
        for table in tables:
            cursor.execute(f'SELECT md5(string_agg(row::text, chr(10) ORDER BY row::text)) FROM "{table}" AS row')
            found[table] = cursor.fetchone()[0]
    return found


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return sorted(table for table in before if before[table] != after[table])

"""What viewer, operator and approver may do, in the admin and by the API: exactly that."""

from importlib import import_module

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import Client

from runs.models import Run
from runs.states import RunStatus
from tests.config.console.test_actions import press
from tests.config.console.test_pages import NOUNS
from tests.support.api import Api
from tests.support.console import list_of, make_failed_run, make_one_of_each, make_source, page_of
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_trigger
from triggers.sources.secrets import rotate

pytestmark = pytest.mark.django_db

ROLES = ("viewer", "operator", "approver")
PAGES = ("/admin/runs/queue/processes/", "/admin/runs/queue/restored/", "/admin/django_celery_results/taskresult/")


def log_in_as(role: str) -> Client:
    user = User.objects.create_user(f"a-{role}", password="x", is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(user)
    return client


def token_of(role: str) -> Api:
    """A token with the permissions of the role."""
    granted = Group.objects.get(name=role).permissions.values_list("content_type__app_label", "codename")
    return Api([f"{app}.{codename}" for app, codename in granted], name=role)


def test_a_viewer_opens_every_list_and_every_page() -> None:
    rows = make_one_of_each(1)
    client = log_in_as("viewer")

    for noun in NOUNS:
        assert client.get(list_of(noun)).status_code == 200, noun
        assert client.get(page_of(noun, rows[noun])).status_code == 200, noun
    for path in ("/admin/", *PAGES):
        assert client.get(path).status_code == 200, path
    assert "The last 24 hours" in client.get("/admin/").content.decode()


@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_see_what_a_viewer_may(role: str) -> None:
    def seen(name: str) -> set[str]:
        permissions = Group.objects.get(name=name).permissions.filter(codename__startswith="view_")
        return set(permissions.values_list("codename", flat=True))

    assert seen(role) == seen("viewer")


@pytest.mark.parametrize("role", ROLES)
def test_no_role_sees_secrets_or_accounts(role: str) -> None:
    source = make_source("shop", kind="hmac", settings={"header": "X", "template": "{body}"})
    secret = rotate(source, by="test")
    client = log_in_as(role)

    assert secret not in client.get(page_of("triggers_source", source)).content.decode()
    for path in ("/admin/auth/user/", "/admin/auth/group/"):
        assert client.get(path).status_code == 403
    names = set(Group.objects.get(name=role).permissions.values_list("codename", flat=True))
    assert "view_secret" not in names


@pytest.mark.parametrize(("role", "may"), [("viewer", False), ("operator", True), ("approver", False)])
def test_an_operators_buttons_are_an_operators(role: str, may: bool) -> None:
    rows, client = make_one_of_each(1), log_in_as(role)
    buttons = [
        ("runs_run", "requeue_run", {}),
        ("runs_run", "cancel_run", {}),
        ("triggers_event", "replay_event", {}),
        ("triggers_trigger", "fire", {"data": "{}"}),
        ("triggers_trigger", "pause", {"reason": "x"}),
        ("triggers_trigger", "resume", {"held": "run"}),
        ("triggers_schedule", "pause", {}),
        ("triggers_schedule", "resume", {}),
        ("triggers_schedule", "fire", {}),
    ]

    for noun, button, fields in buttons:
        assert press(client, noun, rows[noun], button, **fields).status_code == (200 if may else 403), button
    for path in ("all/pause/", "all/resume/", "default/pause/"):
        answer = client.post(f"/admin/runs/queue/{path}", {"reason": "x"})
        assert answer.status_code == (302 if may else 403), path


@pytest.mark.parametrize("role", ROLES)
def test_no_role_may_change_the_installation(role: str) -> None:
    rows, client = make_one_of_each(1), log_in_as(role)
    buttons = [
        ("triggers_trigger", "edit"),
        ("triggers_trigger", "reset"),
        ("triggers_schedule", "edit"),
        ("triggers_schedule", "remove"),
        ("triggers_source", "edit"),
        ("triggers_source", "test"),
        ("triggers_source", "rotate-secret"),
        ("triggers_source", "enter-secret"),
        ("triggers_apitoken", "revoke_token"),
        ("triggers_event", "erase_event"),
    ]

    for noun, button in buttons:
        assert press(client, noun, rows[noun], button).status_code == 403, button
    for noun in ("triggers_trigger", "triggers_schedule", "triggers_source", "triggers_apitoken"):
        assert client.get(list_of(noun) + "add/").status_code == 403, noun
    assert client.get("/admin/runs/queue/default/limit/").status_code == 403


@pytest.mark.parametrize("role", ROLES)
def test_a_token_of_any_role_reads(role: str) -> None:
    api = token_of(role)
    for path in ("events/", "runs/", "triggers/", "schedules/", "sources/", "queues/"):
        assert api.get(path).status == 200, path


@pytest.mark.parametrize(("role", "may"), [("viewer", False), ("operator", True), ("approver", False)])
def test_a_token_of_an_operator_acts(role: str, may: bool) -> None:
    make_trigger()
    event = make_event()
    failed, queued = make_failed_run(make_trigger("failing")), make_run()
    api = token_of(role)

    paths = [
        "triggers/greeter/fire/",
        "triggers/greeter/pause/",
        "triggers/greeter/resume/",
        f"events/{event.pk}/replay/",
        f"runs/{failed.pk}/requeue/",
        f"runs/{queued.pk}/cancel/",
        "queues/all/pause/",
        "queues/all/resume/",
    ]
    assert {path: api.post(path).status in (200, 202) for path in paths} == dict.fromkeys(paths, may)
    assert Run.objects.get(pk=queued.pk).status == (RunStatus.CANCELLED if may else RunStatus.QUEUED)
    assert api.post("queues/default/limit/", {"max_running": 1}).status == 403
    assert api.post("events/", {}).status == 403


def test_changes_of_a_group_by_people_are_kept() -> None:
    operator = Group.objects.get(name="operator")
    operator.permissions.clear()
    Group.objects.get(name="viewer").delete()

    roles = import_module("config.migrations.0001_roles")
    with connection.schema_editor() as editor:
        roles.make_roles(apps, editor)

    assert not operator.permissions.exists()
    assert Group.objects.get(name="viewer").permissions.exists()


@pytest.mark.parametrize("closes", [True, False])
def test_operators_that_close_incidents_acknowledge_and_mute_them(closes: bool) -> None:
    operator = Group.objects.get(name="operator")
    codenames = ["close_incident", "acknowledge_incident", "mute_incident"]
    assert operator.permissions.filter(codename__in=codenames).count() == 3
    operator.permissions.remove(*Permission.objects.filter(codename__in=codenames[0 if not closes else 1 :]))

    with connection.schema_editor() as editor:
        import_module("config.migrations.0005_roles_acknowledge_incidents").let_operators_acknowledge(apps, editor)

    assert operator.permissions.filter(codename__in=codenames).count() == (3 if closes else 0)


def test_no_role_is_staff_by_itself() -> None:
    user = User.objects.create_user("ada", password="x")
    user.groups.add(Group.objects.get(name="operator"))
    client = Client()
    client.force_login(user)

    assert client.get("/admin/").status_code == 302


ACCOUNTS = ("auth.view_user", "auth.add_user", "auth.change_user", "auth.delete_user")


def test_a_user_who_changes_users_cannot_grant_permissions() -> None:
    client, user = log_in_with(*ACCOUNTS)
    operator = Group.objects.get(name="operator")
    granted = {"is_superuser": "on", "groups": [operator.pk], "user_permissions": [1, 2]}

    page = client.get(f"/admin/auth/user/{user.pk}/change/").content.decode()
    client.post(
        f"/admin/auth/user/{user.pk}/change/", {"username": "ada", "is_active": "on", "is_staff": "on", **granted}
    )

    user = User.objects.get(pk=user.pk)
    assert (user.username, user.is_superuser, user.groups.count(), user.user_permissions.count()) == (
        "ada",
        False,
        0,
        4,
    )
    assert not any(f'name="{field}"' in page for field in granted)


@pytest.mark.parametrize("active", [True, False])
def test_a_user_manager_cannot_take_over_a_superuser_or_a_user_with_more_rights(active: bool) -> None:
    client, _ = log_in_with(*ACCOUNTS)
    root = User.objects.create_superuser("root", password="x", is_active=active)
    operator = User.objects.create_user("op", password="x", is_active=active)
    operator.groups.add(Group.objects.get(name="operator"))
    new = {"password1": "a long enough one", "password2": "a long enough one", "usable_password": "true"}

    for user in (root, operator):
        page = f"/admin/auth/user/{user.pk}"
        answers = [client.post(f"{page}/{path}/", new).status_code for path in ("password", "change", "delete")]
        assert answers == [403, 403, 403]
        assert User.objects.get(pk=user.pk).check_password("x")
    client.post("/admin/auth/user/", {"action": "delete_selected", "_selected_action": [root.pk], "post": "yes"})
    assert User.objects.filter(pk=root.pk).exists()


def test_a_user_manager_resets_passwords_of_users_with_no_more_rights() -> None:
    client, _ = log_in_with(*ACCOUNTS)
    user = User.objects.create_user("bob", password="x")
    new = {"password1": "a long enough one", "password2": "a long enough one", "usable_password": "true"}

    client.post(f"/admin/auth/user/{user.pk}/password/", {**new, "set-password": "1"})

    assert User.objects.get(pk=user.pk).check_password("a long enough one")


def test_only_superusers_change_groups() -> None:
    client, _ = log_in_with("auth.view_group", "auth.add_group", "auth.change_group", "auth.delete_group")
    page = f"/admin/auth/group/{Group.objects.get(name='viewer').pk}"

    posts = [client.post(path).status_code for path in (f"{page}/change/", f"{page}/delete/", "/admin/auth/group/add/")]

    assert posts == [403, 403, 403]


def log_in_with(*permissions: str) -> tuple[Client, User]:
    user = User.objects.create_user("ada", password="x", is_staff=True)
    for permission in permissions:
        app, codename = permission.split(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    client = Client()
    client.force_login(user)
    return client, user

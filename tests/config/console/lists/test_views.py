"""Columns and saved views of lists: each belongs to a user, a shared one is seen by all who may see the list."""

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.http import HttpResponse
from django.test import Client

from agents.kernel.redaction import know
from config.console.lists.views import choose_columns, save_view
from config.models import SavedView
from runs.models import AuditEntry
from tests.config.console.conftest import LogIn
from tests.support.console import context_of, list_of
from tests.support.runs import make_run

SEES_RUNS = "runs.view_run"


def save(client: Client, name: str, query: str = "status__exact=failed", **fields: object) -> HttpResponse:
    given = {"name": name, "query": query, "column": ["took", "reason"], **fields}
    return client.post("/admin/lists/runs_run/views/", given, follow=True)  # type: ignore[return-value]


def columns_of(client: Client, query: str = "") -> tuple[str, ...]:
    listed = context_of(client, list_of("runs_run") + query)["cl"].list_display
    return tuple(name for name in listed if name != "action_checkbox")


def test_chosen_columns_are_those_of_one_user(log_in: LogIn) -> None:
    ada, bob = log_in(name="ada"), log_in(name="bob")
    usual = columns_of(ada)

    ada.post("/admin/lists/runs_run/columns/", {"column": ["version", "took", "no_such"], "query": ""})

    assert columns_of(ada) == ("status_label", "agent", "about", "took", "version")
    assert columns_of(bob) == usual
    ada.post("/admin/lists/runs_run/columns/", {"usual": "1"})
    assert columns_of(ada) == usual
    assert not SavedView.objects.exists()


@pytest.mark.parametrize("noun", ["runs_run", "triggers_event"])
def test_every_column_that_can_be_chosen_can_be_shown(admin: Client, noun: str) -> None:
    make_run(version="2026.11.2")
    every = [one.name for one in admin.get(list_of(noun)).context["cl"].arrangement.columns]

    answer = admin.post(f"/admin/lists/{noun}/columns/", {"column": every, "query": "q=x"}, follow=True)

    assert answer.redirect_chain == [(f"{list_of(noun)}?q=x", 302)]
    assert [one.is_shown for one in admin.get(list_of(noun)).context["cl"].arrangement.columns] == [True] * len(every)


def test_a_view_keeps_filters_and_columns_under_its_name(admin: Client) -> None:
    failed = make_run(status="failed")
    make_run(status="succeeded")

    answer = save(admin, " What fails ", "status__exact=failed&p=2&view=7")

    view = SavedView.objects.get()
    assert (view.name, view.query, view.columns) == ("What fails", "status__exact=failed", ["took", "reason"])
    assert answer.redirect_chain == [(f"{list_of('runs_run')}?status__exact=failed&view={view.pk}", 302)]  # type: ignore[attr-defined]
    assert [run.pk for run in answer.context["cl"].result_list] == [failed.pk]  # type: ignore[attr-defined]
    assert columns_of(admin, f"?view={view.pk}") == ("status_label", "agent", "about", "took", "reason")
    assert "What fails" in admin.get(list_of("runs_run")).content.decode()


def test_a_view_that_is_saved_again_is_changed(admin: Client) -> None:
    save(admin, "mine")
    save(admin, "mine", "status__exact=waiting")

    assert list(SavedView.objects.values_list("query", flat=True)) == ["status__exact=waiting"]


def test_a_view_of_one_user_is_not_seen_by_another_unless_it_is_shared(log_in: LogIn) -> None:
    ada, bob = log_in(name="ada"), log_in(SEES_RUNS, name="bob")
    save(ada, "secret plan")
    save(ada, "for all", shared="on")

    page = bob.get(list_of("runs_run")).content.decode()

    assert ("secret plan" in page, "for all" in page) == (False, True)
    hidden = SavedView.objects.get(name="secret plan")
    assert columns_of(bob, f"?view={hidden.pk}") == columns_of(bob)


def test_sharing_needs_its_permission_and_is_audited(log_in: LogIn) -> None:
    bob = log_in(SEES_RUNS, name="bob")
    assert save(bob, "mine", shared="on").status_code == 403
    assert save(bob, "mine").status_code == 200

    carol = log_in(SEES_RUNS, "config.share_savedview", name="carol")
    save(carol, "ours", shared="on")
    save(carol, "ours")

    entries = (
        AuditEntry.objects.filter(kind="savedview").order_by("pk").values_list("by", "action", "kind", "detail__name")
    )
    assert list(entries) == [
        ("admin:carol", "share", "savedview", "ours"),
        ("admin:carol", "unshare", "savedview", "ours"),
    ]


def test_a_shared_view_is_removed_by_its_owner_or_by_who_may_share(log_in: LogIn) -> None:
    ada, bob = log_in(name="ada"), log_in(SEES_RUNS, name="bob")
    carol = log_in(SEES_RUNS, "config.share_savedview", name="carol")
    for name in ("one", "two"):
        save(ada, name, shared="on")
    one, two = SavedView.objects.order_by("name")

    assert bob.post(f"/admin/lists/views/{one.pk}/remove/").status_code == 403
    assert carol.post(f"/admin/lists/views/{one.pk}/remove/").status_code == 302
    assert ada.post(f"/admin/lists/views/{two.pk}/remove/").status_code == 302

    assert not SavedView.objects.exists()
    assert AuditEntry.objects.filter(kind="savedview", action="delete").count() == 2


def test_a_private_view_of_another_cannot_be_removed(log_in: LogIn) -> None:
    ada, carol = log_in(name="ada"), log_in(name="carol")
    save(ada, "mine")

    assert carol.post(f"/admin/lists/views/{SavedView.objects.get().pk}/remove/").status_code == 404
    assert SavedView.objects.exists()


@pytest.mark.parametrize("path", ["/admin/lists/runs_run/columns/", "/admin/lists/runs_run/views/"])
def test_who_may_not_see_a_list_arranges_nothing_of_it(log_in: LogIn, path: str) -> None:
    bob = log_in("triggers.view_event", name="bob")

    assert bob.post(path, {"name": "x", "column": "took"}).status_code == 403
    assert bob.post(path.replace("runs_run", "runs_budget"), {"name": "x"}).status_code == 404
    assert bob.get(path.replace("runs_run", "triggers_event")).status_code == 405


@pytest.mark.parametrize("name", ["", "  ", "x" * 61, "two\nlines"])
def test_an_invalid_name_is_refused_in_words(admin: Client, name: str) -> None:
    assert "A view needs a name" in save(admin, name).content.decode()
    assert not SavedView.objects.exists()


def test_long_filters_are_refused_in_words(admin: Client) -> None:
    assert "The filters are longer" in save(admin, "x", f"q={'x' * 2_000}").content.decode()


def test_the_views_of_a_user_are_bounded_also_by_the_database(admin: Client) -> None:
    user = User.objects.get(username="ada")
    for number in range(SavedView.MOST):
        save_view(user, "runs_run", name=str(number), query="", columns=[], is_shared=False, by="admin:ada")

    assert f"You have {SavedView.MOST} views" in save(admin, "one more").content.decode()
    with pytest.raises(IntegrityError), transaction.atomic():
        SavedView.objects.create(owner=user, place=SavedView.MOST + 1, page="runs_run", name="x", query="")


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": " x"},
        {"name": "x" * 61},
        {"query": "x" * 2_001},
        {"page": "runs_budget"},
        {"place": 0},
        {"columns": ["x"] * 41},
    ],
)
def test_the_database_refuses_an_invalid_view(admin: Client, wrong: dict[str, object]) -> None:
    fields = {"owner": User.objects.get(username="ada"), "place": 1, "page": "runs_run", "name": "x", "query": ""}

    with pytest.raises(IntegrityError), transaction.atomic():
        SavedView.objects.create(**{**fields, **wrong})


def test_a_deleted_user_leaves_nothing_even_if_another_process_deletes_the_row(admin: Client) -> None:
    save(admin, "mine")
    user = User.objects.get(username="ada")
    choose_columns(user, "runs_run", ["took"])

    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM auth_user WHERE id = %s", [user.pk])
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")

    assert SavedView.objects.count() == 0


@pytest.mark.parametrize("given", [{"name": "kaufmann-79 x"}, {"query": "field=token%3Dkaufmann-79+x"}])
def test_a_view_with_a_secret_is_refused(admin: Client, given: dict[str, str]) -> None:
    know("kaufmann-79 x")

    answer = save(admin, **{"name": "mine", **given})

    assert "contain a secret" in answer.content.decode()
    assert not SavedView.objects.exists()


def test_shared_views_of_others_leave_out_none_of_the_users_own(log_in: LogIn) -> None:
    client = log_in(name="ada")
    for number in range(2):
        other = User.objects.create_user(f"other-{number}")
        SavedView.objects.bulk_create(
            SavedView(owner=other, place=place, page="runs_run", name=f"a{place}", is_shared=True)
            for place in range(1, SavedView.MOST + 1)
        )

    answer = save(client, "zero")

    arrangement = answer.context["cl"].arrangement  # type: ignore[attr-defined]
    assert "zero" in [view.name for view, _, _ in arrangement.views]
    assert arrangement.shown and arrangement.shown.name == "zero"

"""The page “Chat accounts”: each person links and unlinks their own accounts, superusers see those of all."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from config.web.sessions import GIVEN
from runs.actions.chat_accounts import link_account
from runs.models import AuditEntry, ChatAccount, ChatLinkCode
from tests.config.console.test_pages import queries_of
from tests.support.asking import SIGNING, asking_slack, code_of, linked, person
from tests.support.hooks import add_secret
from triggers.models import Secret, Source

pytestmark = pytest.mark.django_db

PAGE = "/admin/chat-accounts/"


@pytest.fixture
def source() -> Source:
    return asking_slack(1)


def client_of(user: User, *, minutes: int = 0) -> Client:
    """Logged in, with the last password so many minutes ago."""
    user.set_password("x")
    user.save()
    client = Client()
    assert client.login(username=user.get_username(), password="x")
    session = client.session
    session[GIVEN] = session.get(GIVEN, 0) - timedelta(minutes=minutes).total_seconds()
    session.save()
    return client


def test_a_person_makes_a_code_that_is_shown_once(source: Source) -> None:
    ada = person()
    client = client_of(ada)

    answer = client.post(PAGE, {"source": str(source.pk)})

    [code] = re.findall(r"link (wkl_[\w-]{32})<", answer.content.decode())
    assert "no-store" in answer.headers["Cache-Control"]
    assert code not in client.get(PAGE).content.decode()
    assert code not in str(list(ChatLinkCode.objects.values()))
    secret = Secret.objects.get(source=source)
    link_account(
        code, way="slack", source_id=source.pk, secret_id=secret.pk, workspace="T1", account="U1", name="<b>ada</b>"
    )
    page = client.get(PAGE).content.decode()
    assert "T1/U1" in page and "&lt;b&gt;ada" in page and ">decides<" in page
    assert [one.by for one in AuditEntry.objects.filter(kind="chataccount").order_by("pk")] == [
        "admin:ada",
        "slack:ada",
    ]


def test_an_old_session_makes_no_code_and_unlinks(source: Source) -> None:
    ada = person()
    client = client_of(ada, minutes=60)
    account = linked(source, ada)

    answer = client.post(PAGE, {"source": str(source.pk)})

    assert answer.headers["Location"].startswith("/admin/password-again/")
    assert not ChatLinkCode.objects.exists()
    client.post(PAGE, {"unlink": account.pk})
    assert not ChatAccount.objects.exists()


def test_an_old_session_makes_no_code_by_a_form_that_also_names_no_link(source: Source) -> None:
    client = client_of(person(), minutes=60)

    answer = client.post(PAGE, {"source": str(source.pk), "unlink": ""})

    assert answer.headers["Location"].startswith("/admin/password-again/")
    assert not ChatLinkCode.objects.exists()


def test_who_may_not_decide_makes_no_code(source: Source) -> None:
    ada = person(decides=False)
    client = client_of(ada)
    assert client.get(PAGE).status_code == 403
    linked(source, ada)  # from the time when she had the right

    assert "You may not decide approvals" in client.get(PAGE).content.decode()
    assert client.post(PAGE, {"source": str(source.pk)}).status_code == 403
    assert not ChatLinkCode.objects.exists()


def test_a_person_sees_and_unlinks_their_own_alone(source: Source) -> None:
    account = linked(source, person("bob"), account="U7")
    client = client_of(person())

    assert "U7" not in client.get(PAGE).content.decode()
    client.post(PAGE, {"unlink": account.pk})
    assert ChatAccount.objects.count() == 1

    root = User.objects.create_superuser("root")
    client = client_of(root)
    assert "U7" in client.get(PAGE).content.decode()
    client.post(PAGE, {"unlink": account.pk})
    assert not ChatAccount.objects.exists()
    entry = AuditEntry.objects.get(action="unlink")
    assert (entry.by, entry.detail) == ("admin:root", {"account": "T1/U7", "user": "bob"})


def test_the_page_of_all_costs_the_same_for_one_account_of_a_user_and_for_ten(source: Source) -> None:
    client, bob = client_of(User.objects.create_superuser("root")), person("bob")
    linked(source, bob, account="U0")
    client.get(PAGE)
    for_one = queries_of(client, PAGE)
    for number in range(1, 10):
        linked(source, bob, account=f"U{number}")

    assert queries_of(client, PAGE) == for_one


def test_why_a_link_does_not_count_is_shown(source: Source) -> None:
    ada = person()
    client = client_of(ada)
    linked(source, ada)
    Secret.objects.all().delete()
    add_secret(source, SIGNING)

    assert "ended: the source has another secret" in client.get(PAGE).content.decode()

    Source.objects.filter(pk=source.pk).delete()
    assert "ended: its source is deleted" in client.get(PAGE).content.decode()


@pytest.mark.parametrize("given", [{}, {"source": "x"}, {"unlink": "-1"}, {"unlink": str(2**70)}])
def test_what_makes_no_sense_changes_nothing(source: Source, given: dict[str, str]) -> None:
    assert client_of(person()).post(PAGE, given).status_code == 400


def test_a_source_that_asks_for_nothing_links_no_one(source: Source) -> None:
    Source.objects.update(settings={**source.settings, "approvals": "no"})
    client = client_of(person())

    client.post(PAGE, {"source": str(source.pk)})

    assert not ChatLinkCode.objects.exists()


def test_no_one_without_a_login_sees_the_page() -> None:
    assert Client().get(PAGE).status_code == 302


def test_a_deleted_user_leaves_nothing_even_if_another_process_deletes_the_row(source: Source) -> None:
    ada = User.objects.create_superuser("ada")
    linked(source, ada)
    code_of(ada, source)

    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM auth_user WHERE id = %s", [ada.pk])
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")

    assert (ChatAccount.objects.count(), ChatLinkCode.objects.count()) == (0, 0)

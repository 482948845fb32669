"""The sidebar and the tabs lead to every list, and to nothing that a person may not see."""

import re

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

pytestmark = pytest.mark.django_db
# Reached from the pages of others.
ELSEWHERE = {"runs.queue", "runs.worker", "runs.agentstop"} | {
    f"django_celery_beat.{kind}schedule" for kind in ("clocked", "crontab", "interval", "solar")
}


def links_of(client: Client, path: str, part: str) -> list[str]:
    page = client.get(path).content.decode()
    begin = page.index(f'id="{part}"')
    return re.findall(r'<a href="([^"#]+)"', page[begin : page.index("</nav>", begin)])


def sidebar_of(client: Client) -> list[str]:
    return [link for link in links_of(client, "/admin/", "nav-sidebar-inner") if link.startswith("/admin/")]


def test_every_list_is_an_entry_or_a_tab_of_one(admin_client: Client) -> None:
    entries = [link for link in dict.fromkeys(sidebar_of(admin_client)) if "log" not in link.split("/")[2]]
    found = {*entries}
    for entry in entries:
        if 'id="tabs-items"' in admin_client.get(entry).content.decode():
            found.update(links_of(admin_client, entry, "tabs-items"))

    lists = {
        reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"): model._meta.label_lower
        for model in admin.site._registry
    }
    assert {label for link, label in lists.items() if link not in found} <= ELSEWHERE
    assert len(entries) <= 18


def test_each_tab_is_a_page_that_shows_the_same_tabs_and_itself_as_active(admin_client: Client) -> None:
    for entry in ("/admin/runs/run/", "/admin/runs/agentstop/agents/", "/admin/triggers/schedule/"):
        tabs = links_of(admin_client, entry, "tabs-items")
        for tab in tabs:
            assert links_of(admin_client, tab, "tabs-items") == tabs
            assert re.findall(r'<a href="([^"]+)" class="active"', admin_client.get(tab).content.decode()) == [tab]


def test_the_entry_of_a_page_is_the_active_one(admin_client: Client) -> None:
    for path in ("/admin/", "/admin/inbox/", "/admin/runs/run/", "/admin/triggers/source/add/"):
        page = admin_client.get(path).content.decode()
        [active] = re.findall(r'<a href="([^"]+)"[^>]*class="[^"]* active"', page[: page.index('id="main"')])
        assert path.startswith(active) and (path == "/admin/") is (active == "/admin/")


def test_an_entry_leads_to_the_first_tab_that_a_person_may_see(client: Client) -> None:
    user = User.objects.create_user("ada", password="right", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_session", content_type__app_label="agents"))
    client.force_login(user)

    entries = sidebar_of(client)

    assert "/admin/agents/session/" in entries
    assert not [link for link in entries if link.startswith(("/admin/runs/", "/admin/triggers/"))]
    assert links_of(client, "/admin/agents/session/", "tabs-items") == ["/admin/agents/session/"]

"""The console and the documentation lead to each other."""

import re
from collections.abc import Sequence

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from config.documentation.console_pages import PAGES, TITLES, console_page_of, docs_of_console
from config.documentation.pages import pages
from triggers.sources.kind import Kind, kinds

KINDS: Sequence[Kind[object]] = list(kinds().values())


def is_there(page: str) -> bool:
    slug, _, anchor = page.partition("#")
    found = pages().by_slug.get(slug)
    return found is not None and (not anchor or anchor in {heading.anchor for heading in found.headings})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_documentation_page_of_a_kind_exists_and_names_it(kind: Kind[object]) -> None:
    page = pages().by_slug[kind.docs.partition("#")[0]]

    assert is_there(kind.docs)
    assert re.search(rf"(?i)(?<![\w-]){re.escape(kind.label.partition(' (')[0])}(?![\w-])", page.source)


def test_every_documentation_page_that_the_console_links_to_exists() -> None:
    assert {page for page in PAGES.values() if not is_there(page)} == set()


def test_every_list_of_the_console_has_its_page() -> None:
    names = {f"{model._meta.app_label}_{model._meta.model_name}" for model in admin.site._registry}

    assert {name for name in names if docs_of_console(f"{name}_changelist") == "/docs/console/"} == set()


def test_the_documentation_leads_back_to_pages_that_are_there() -> None:
    assert set(TITLES) <= set(pages().by_slug)
    assert all(console_page_of(slug) for slug in TITLES)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("admin:index", "/docs/console/"),
        ("admin:triggers_event_changelist", "/docs/events/"),
        ("admin:runs_queue_processes", "/docs/deploy/#processes"),
        ("overnight", "/docs/notifications/#what-ran-overnight"),
    ],
)
def test_a_page_of_the_console_links_to_its_page(name: str, page: str, admin_client: Client) -> None:
    text = admin_client.get(reverse(name)).content.decode()

    assert f'class="console-docs" href="{page}"' in text


@pytest.mark.django_db
def test_the_form_of_a_new_source_links_to_the_page_of_its_kind(admin_client: Client) -> None:
    text = admin_client.get(reverse("admin:triggers_source_add"), {"choice": "ping"}).content.decode()

    assert 'href="/docs/absence/#dead-mans-switches"' in text
    assert 'href="/docs/sources/"' in admin_client.get(reverse("admin:triggers_source_add")).content.decode()


def test_a_page_of_the_documentation_links_back(client: Client) -> None:
    assert f'href="{reverse("admin:triggers_event_changelist")}"' in client.get("/docs/events/").content.decode()

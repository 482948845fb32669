"""`/api/docs/`: each operation of the OpenAPI document is on a page, without a login, a query or another site."""

import re
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from config.api_document import document
from config.api_reference import METHODS
from config.web.headers import POLICY

pytestmark = pytest.mark.django_db


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, described[method])
        for path, described in document()["paths"].items()
        for method in METHODS
        if method in described
    ]


def resources() -> list[str]:
    return sorted({described["tags"][0] for _, _, described in operations()})


def test_every_operation_is_listed_and_described(client: Client) -> None:
    listed = client.get("/api/docs/").content.decode()
    pages = {name: client.get(f"/api/docs/{name}/").content.decode() for name in resources()}

    for path, method, described in operations():
        name, page = described["operationId"], pages[described["tags"][0]]
        assert f'href="/api/docs/{described["tags"][0]}/#{name}"' in listed
        assert f'<h2 id="{name}">' in page
        assert f"<code>{method.upper()} {path}</code>" in page
        for parameter in described.get("parameters", ()):
            assert f"<code>{parameter['name']}</code>" in page


def test_every_link_inside_a_page_leads_to_a_place_on_it(client: Client) -> None:
    for name in resources():
        page = client.get(f"/api/docs/{name}/").content.decode()
        ids = set(re.findall(r'id="([^"]+)"', page))
        assert {target for target in re.findall(r'href="#([^"]+)"', page) if target not in ids} == set(), name


def test_the_pages_need_neither_a_query_nor_another_site(
    client: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client.get("/api/docs/runs/")  # whether the schema is this version's is looked up once
    with django_assert_num_queries(0):
        answer = client.get("/api/docs/runs/")

    assert answer["Content-Security-Policy"] == POLICY
    assert re.findall(r'(?:src|href)="(?:https?:)?//', answer.content.decode()) == []


def test_an_example_has_a_body_with_the_required_fields_and_a_token(client: Client) -> None:
    page = client.get("/api/docs/runs/").content.decode().replace("&quot;", '"').replace("&#x27;", "'")

    assert 'curl -sS -X POST "$SITE/api/v1/runs/{id}/signal/"' in page
    assert '-H "Authorization: Bearer $TOKEN"' in page
    assert '-d \'{"name":' in page


@pytest.mark.parametrize("path", ["/api/docs/no-such/", "/api/docs/runs/more/"])
def test_an_unknown_resource_answers_404(client: Client, path: str) -> None:
    assert client.get(path).status_code == 404


def test_nothing_is_posted_to_it(client: Client) -> None:
    assert client.post("/api/docs/").status_code == 405


def test_the_documentation_and_the_console_lead_to_it(client: Client) -> None:
    assert 'href="/api/docs/"' in client.get("/docs/api/").content.decode()


def test_the_tabs_of_access_lead_to_it(admin_client: Client) -> None:
    assert 'href="/api/docs/"' in admin_client.get("/admin/triggers/apitoken/").content.decode()

"""`/docs/` serves the files of docs/ as they are, to everyone, without the database."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries, Settings

from config.documentation.build import broken_links, write
from config.documentation.page import Page
from config.documentation.pages import pages
from config.documentation.search import search

HREF = re.compile(r'href="([^"#]*)')


@pytest.fixture
def written(tmp_path: Path, settings: Settings) -> Path:
    """An installation whose docs/ holds one page."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("# Map\n\n## Start\n\n| page |\n|---|\n| [One](one.md) |\n")
    (tmp_path / "docs" / "one.md").write_text("# One\n\n## Two words\n\nSee [the map](README.md#start).\n")
    settings.BASE_DIR = tmp_path
    return tmp_path / "docs"


def links_of(url: str, client: Client) -> Iterator[str]:
    text = client.get(url).content.decode()
    yield from (urljoin(url, found) for found in HREF.findall(text) if not re.match(r"[a-z]+:", found))


@pytest.mark.django_db
def test_every_page_is_served_without_a_login_and_without_a_query(
    client: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(0):
        answers = {slug: client.get(f"/docs/{slug}/" if slug else "/docs/") for slug in pages().by_slug}

    assert {slug for slug, answer in answers.items() if answer.status_code != 200} == set()
    assert len(answers) > 40
    assert all("<script" not in answer.content.decode() for answer in answers.values())
    assert all("script-src" in answer.headers["Content-Security-Policy"] for answer in answers.values())


@pytest.mark.django_db
def test_every_link_of_the_site_leads_to_a_page_of_it(client: Client) -> None:
    urls = {reverse("docs_page", args=[slug]) if slug else reverse("docs") for slug in pages().by_slug}
    found = {link for url in urls for link in links_of(url, client) if link.startswith("/docs/")}

    assert found == urls


@pytest.mark.parametrize("path", ["/docs/nothing/", "/docs/../README.md", "/docs/README.md/"])
def test_a_path_that_is_no_page_answers_404(path: str, client: Client) -> None:
    assert client.get(path).status_code == 404


def test_a_search_finds_sections_by_all_of_their_words(client: Client) -> None:
    text = client.get("/docs/", {"q": "worker lease"}).content.decode()

    assert 'href="how-it-works/#when-something-dies"' in text
    assert "No sections" in client.get("/docs/", {"q": "<b>nothing"}).content.decode()


def test_words_of_a_title_come_first(written: Path) -> None:
    (written / "three.md").write_text("# Three\n\nTwo words, two words, two words.\n")

    assert [hit.title for hit in search(pages().by_slug.values(), "two WORDS")] == ["Two words", "Three"]


def test_an_edited_page_is_shown_at_the_next_request(written: Path, client: Client) -> None:
    before = client.get("/docs/one/").content.decode()
    (written / "one.md").write_text("# One\n\nA longer text.\n")

    assert "A longer text" not in before
    assert "A longer text" in client.get("/docs/one/").content.decode()


def test_html_in_a_page_is_text(written: Path, client: Client) -> None:
    (written / "one.md").write_text("# One <script>\n\n<script>alert(1)</script> [x](javascript:alert(1))\n")

    text = client.get("/docs/one/").content.decode()

    assert "<script" not in text and 'href="javascript' not in text


def test_a_heading_has_the_anchor_that_github_gives_it() -> None:
    page = Page("api", Path(__file__).parents[3] / "docs" / "schedules.md")

    assert "why-did-it-not-run" in {heading.anchor for heading in page.headings}


def test_no_link_of_the_documentation_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("docs")

    assert "every link leads somewhere" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[x](two.md)", "docs/one.md: two.md: there is no such file"),
        ("[x](README.md#end)", "docs/one.md: README.md#end: there is no such heading"),
        ("[x](#end)", "docs/one.md: #end: there is no such heading"),
    ],
)
def test_a_broken_link_is_named(text: str, fault: str, written: Path) -> None:
    (written / "one.md").write_text(f"# One\n\n{text}\n")

    assert list(broken_links(pages())) == [fault]
    with pytest.raises(CommandError, match=re.escape(fault)):
        call_command("docs")


def test_a_page_that_the_map_does_not_name_is_a_fault(written: Path) -> None:
    (written / "two.md").write_text("# Two\n")

    assert list(broken_links(pages())) == ["docs/README.md does not name two.md"]


def test_static_pages_hold_together_at_any_place(tmp_path: Path) -> None:
    assert write(pages(), tmp_path) == len(pages().by_slug)

    for file in tmp_path.rglob("*.html"):
        for target in HREF.findall(file.read_text()):
            if target and not re.match(r"[a-z]+:", target):
                there = (file.parent / target).resolve()
                assert (there / "index.html").is_file() or there.is_file(), f"{file}: {target}"

"""The form of each kind of source: what is required has a star, what is rarely needed is folded, and its words are explained."""

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.utils.html import escape, strip_tags

from config.console.parts.pages import Group
from config.console.sources.explained import FOUND, WORDS, explained
from config.documentation.console_pages import docs_url
from tests.support.console import context_of, make_source, page_of, unwritten
from tests.support.examples import some_cases
from triggers.models import Source
from triggers.sources.kind import Case, kinds
from triggers.sources.metrics.detector import detectors

pytestmark = [pytest.mark.sampled, pytest.mark.django_db]
ADD = "/admin/triggers/source/add/"
KINDS = sorted(kinds())
BY_CASES = [(name, case) for name, kind in sorted(kinds().items()) for case in kind.cases]


def groups_of(client: Client, kind: str) -> list[Group]:
    groups: list[Group] = context_of(client, ADD, {"choice": kind})["groups"]
    return groups


def text_of(answer: Any) -> str:
    return str(answer.content.decode())


@pytest.mark.parametrize("kind", some_cases(KINDS))
def test_a_form_that_is_sent_empty_has_errors_at_fields_with_a_star_alone(admin: Client, kind: str) -> None:
    form = sent(admin, kind)

    if Source.objects.filter(slug="empty").exists():
        assert not kinds()[kind].required
        return
    starred = {name for name, field in form.fields.items() if field.required}
    assert set(form.errors) <= starred
    assert form.errors or not kinds()[kind].fields


def sent(client: Client, kind: str, **filled: str) -> Any:
    """The form of a kind with its errors, after a browser has sent it with this alone filled in."""
    with unwritten():
        empty: Any = client.get(ADD, {"choice": kind})
        answer: Any = client.post(
            ADD, {**untouched(empty.context_data["form"]), "choice": kind, "slug": "empty", **filled}
        )
    return (getattr(answer, "context_data", None) or {}).get("form")


def untouched(form: Any) -> dict[str, Any]:
    """What a browser sends of a form that is not filled in."""
    values = {field.name: field.value() for field in form if field.name not in ("choice", "slug")}
    return {name: "on" if value is True else value for name, value in values.items() if value not in (None, False)}


@pytest.mark.parametrize(("kind", "case"), BY_CASES, ids=lambda value: value.name if isinstance(value, Case) else value)
def test_what_a_case_needs_is_an_error_if_it_is_missing(admin: Client, kind: str, case: Case) -> None:
    form = sent(admin, kind, case=case.name)

    missing = {f"{kind}__{name}" for name in (*kinds()[kind].required, *case.needs)}
    assert missing <= set(form.errors)
    assert not Source.objects.filter(slug="empty").exists()


@pytest.mark.parametrize("kind", ["directory", "json_list", "table", "absence"])
def test_little_is_in_sight_and_nothing_that_is_required_is_folded(admin: Client, kind: str) -> None:
    groups = groups_of(admin, kind)
    [more] = [group for group in groups if group.title == "More"]
    [first] = [group for group in groups if group.title == "Settings"]

    assert more.folded and more.said
    assert len(first.fields) <= 5 or kinds()[kind].cases
    assert not [field.name for field in more.fields if field.field.required]
    shown = {field.name.partition("__")[2] for field in (*first.fields, *more.fields)} - {""}
    assert shown == {field.name for field in kinds()[kind].fields}


def test_the_names_in_sight_are_settings_and_have_what_is_required() -> None:
    for kind in kinds().values():
        names = {field.name for field in kind.fields}
        assert set(kind.in_sight) <= names, kind.name
        assert not kind.in_sight or kind.required <= set(kind.in_sight), kind.name
        for case in kind.cases:
            assert {*case.needs, *kind.required} <= set(case.fields), (kind.name, case.name)
        assert len(names) <= 9 or kind.in_sight or kind.cases, kind.name


def test_what_was_set_in_the_folded_part_is_named_while_it_is_folded(admin: Client) -> None:
    source = make_source("in", kind="directory", settings={"directory": "/data/in", "marker": ".done"})

    groups = context_of(admin, page_of("triggers_source", source).replace("change", "edit"))["groups"]

    [more] = [group for group in groups if group.title == "More"]
    assert more.said == "Marker of complete files: .done"


@pytest.mark.parametrize("kind", some_cases(KINDS))
def test_the_form_and_the_page_of_a_kind_lead_to_its_documentation(admin: Client, kind: str) -> None:
    url = f'href="{docs_url(kinds()[kind].docs)}"'

    assert url in text_of(admin.get(ADD, {"choice": kind}))
    assert url in text_of(admin.get(page_of("triggers_source", make_source("shop", kind=kind))))


def test_words_that_need_an_explanation_lead_to_the_glossary_which_has_them() -> None:
    glossary = (Path(settings.BASE_DIR) / "docs/glossary.md").read_text().partition("## Sources and metrics")[2]
    fields = [field for kind in kinds().values() for field in kind.fields]
    fields += [field for detector in detectors().values() for field in detector.fields]
    texts = [field.help_text for field in fields]

    assert not [word for word in WORDS if f"**{word}**" not in glossary]
    with_words = [text for text in texts if FOUND.search(text)]
    assert len(with_words) > 10
    for text in with_words:
        assert explained(text).count(docs_url("glossary")) >= 1
        assert strip_tags(explained(text)) == escape(text)


def test_a_help_text_is_text_and_no_html() -> None:
    assert explained("Empty: wakeful-<slug>.").startswith("Empty: wakeful-&lt;<a ")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("feed", "Only if the server requires one."), ("stripe", "The provider makes it: paste it here.")],
)
def test_the_secret_is_explained_as_that_of_its_kind(admin: Client, kind: str, expected: str) -> None:
    assert expected in text_of(admin.get(ADD, {"choice": kind}))

"""The arguments of an approval are read as texts, not as JSON."""

import json
from typing import Any

import pytest
from django.test import Client

from config.console.parts.arguments import read
from runs.actions.readable_arguments import MOST, as_json
from tests.support.console import list_of, page_of
from tests.support.journals import make_approval
from tests.support.runs import make_run
from tests.support.secrets import known

LETTER = {"subject": "Reminder", "text": "Dear Ada,\n\nplease pay."}


def test_each_argument_is_named_and_texts_keep_their_lines() -> None:
    found = read({**LETTER, "amount": 12, "to": {"name": "Ada", "tags": ["a"]}, "note": ""})

    assert [(one.name, one.text, one.is_text) for one in found] == [
        ("subject", "Reminder", True),
        ("text", "Dear Ada,\n\nplease pay.", True),
        ("amount", "12", False),
        ("to › name", "Ada", True),
        ("to › tags", '[\n  "a"\n]', False),
        ("note", '""', False),
    ]


@pytest.mark.parametrize("arguments", [None, "text", [1], {}, dict.fromkeys(map(str, range(MOST + 1)), 1)])
def test_what_is_no_object_or_too_long_is_left_to_json(arguments: Any) -> None:
    assert list(read(arguments)) == []


def test_a_secret_is_not_shown() -> None:
    with known("correct-horse-battery"):
        [one] = read({"text": "the password is correct-horse-battery"})

    assert "correct-horse-battery" not in one.text


@pytest.mark.parametrize("hidden", ["\u202e", "\u2066", "\U000e0041"])
def test_a_text_that_would_show_as_another_one_is_read_as_json(hidden: str) -> None:
    found = read({"to": f"AT12{hidden}43", f"b{hidden}cc": " \n", "text": "Dear \u05d0,\nplease."})

    escaped = json.dumps(hidden)[1:-1]
    assert [(one.name, one.text, one.is_text) for one in found] == [
        ("to", f'"AT12{escaped}43"', False),
        (f"b{escaped}cc", '" \\n"', False),
        ("text", "Dear \u05d0,\nplease.", True),
    ]
    assert json.loads(as_json({"to": hidden})) == {"to": hidden} and hidden not in as_json({hidden: hidden})


def test_no_argument_is_left_out_because_two_names_look_like_secrets() -> None:
    names = [f"wkf_{letter * 40}" for letter in "ab"]
    found = read({names[0]: "pay 10,000", names[1]: "harmless"})

    assert [one.text for one in found] == ["pay 10,000", "harmless"]


@pytest.mark.parametrize("path", ["/admin/", "/admin/inbox/", "page"])
def test_a_letter_is_read_as_it_will_be_sent(admin: Client, path: str) -> None:
    approval = make_approval(make_run(status="waiting"), status="open", arguments=LETTER)

    shown = admin.get(page_of("runs_approval", approval) if path == "page" else path).content.decode()

    assert "<dt>text</dt><dd>Dear Ada,\n\nplease pay.</dd>" in shown
    assert list_of("runs_approval") in shown


def test_a_text_cannot_pose_as_another_argument(admin: Client) -> None:
    forged = {"text": "Hello</dd></div><div><dt>amount</dt><dd>1"}
    approval = make_approval(make_run(status="waiting"), status="open", arguments=forged)

    shown = admin.get(page_of("runs_approval", approval)).content.decode()

    assert shown.count("<dt>text</dt>") == 1
    assert "<dt>amount</dt>" not in shown


def test_a_text_with_many_lines_does_not_fill_the_overview(admin: Client) -> None:
    text = "Dear" + "\n" * 100 + "Ada"
    make_approval(make_run(status="waiting"), status="open", arguments={"text": text})

    shown = admin.get("/admin/").content.decode()

    assert text not in shown and "Read and decide" in shown
    assert text in admin.get("/admin/inbox/").content.decode()

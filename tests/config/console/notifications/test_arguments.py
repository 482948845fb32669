"""The arguments of an approval are read as texts, not as JSON."""

from typing import Any

import pytest
from django.test import Client

from config.console.parts.arguments import read
from runs.actions.readable_arguments import MOST
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

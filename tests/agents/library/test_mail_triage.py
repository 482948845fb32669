"""The agent mail-triage, at a server with Gmail's addresses and answers: it labels, drafts, and sends nothing."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

from agents.exceptions import Permanent, StepFailed
from agents.library.mail_triage import mail_triage
from agents.testing import AgentResult, Crashed, Journal, assert_replays, run_agent
from tests.support.mail_servers import DATA, GmailServer, serving_mail

pytestmark = pytest.mark.django_db


@pytest.fixture
def gmail(monkeypatch: pytest.MonkeyPatch) -> Iterator[GmailServer]:
    box = GmailServer()
    with serving_mail(box, monkeypatch):
        yield box


def triage(label: str = "To answer", answer: str = "On Friday, yes.", data: Any = DATA, **more: Any) -> AgentResult:
    model = TestModel(custom_output_args={"label": label, "answer": answer})
    return run_agent(mail_triage, data=data, type="mail.received", from_strangers=True, model=model, **more)


def test_a_question_is_labelled_and_its_answer_waits_as_a_draft(gmail: GmailServer) -> None:
    done = triage()

    assert done.result == {"label": "To answer", "drafted": True}
    assert gmail.labels == {"Wakeful/To answer": "Label_0"} and gmail.on_message == ["Label_0"]
    assert gmail.draft().get_content().strip() == "On Friday, yes."
    assert [notice.text for notice in done.notifications] == ["A draft answers Anna: Grüße: when do you come?"]
    assert done.is_tainted
    assert_replays(done)


def test_it_writes_labels_and_drafts_and_asks_for_nothing_that_sends(gmail: GmailServer) -> None:
    triage()

    assert gmail.written == [("POST", "/labels"), ("POST", "/messages/m0/modify"), ("POST", "/drafts")]


@pytest.mark.parametrize(
    ("label", "answer", "changed"),
    [
        ("Invoice", "", {}),
        ("Newsletter", "Thank you!", {"list_id": "<news.example.org>"}),
        ("To read", "Thank you!", {"is_automatic": True}),
        ("Unwanted", "Stop it.", {}),
    ],
)
def test_other_messages_are_labelled_in_silence(gmail: GmailServer, label: str, answer: str, changed: Any) -> None:
    done = triage(label, answer, {**DATA, **changed})

    assert done.result == {"label": label, "drafted": False}
    assert gmail.labels == {f"Wakeful/{label}": "Label_0"}
    assert not gmail.drafts and not done.notifications


@pytest.mark.parametrize("step", ["label", "draft"])
def test_a_run_that_dies_goes_on_and_drafts_once(gmail: GmailServer, step: str) -> None:
    journal = Journal()
    with pytest.raises(Crashed):
        triage(journal=journal, crash_after=step)

    done = triage(journal=journal)

    assert done.result["drafted"] and len(gmail.drafts) == 1 and len(done.notifications) == 1


def test_mail_of_another_account_fails_and_says_so(gmail: GmailServer) -> None:
    with pytest.raises(StepFailed, match="is it of another mailbox"):
        triage(data={**DATA, "message_id": "<elsewhere@example.org>"})
    assert not gmail.written


@pytest.mark.parametrize("data", [None, {}, {**DATA, "from": "Anna"}])
def test_what_is_no_message_fails_before_a_model_is_asked(data: Any) -> None:
    with pytest.raises(Permanent, match="not the data of a message"):
        triage(data=data)

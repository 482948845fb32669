"""The tools label_mail and draft_mail, at servers that give the answers of Gmail and Graph. They send nothing."""

from collections.abc import Iterator
from typing import Any

import pytest

from agents.agent import Agent
from agents.exceptions import Permanent, Retry, StepFailed
from agents.kernel.connecting import MayUse
from agents.mail_accounts import Mail, MailRefused, answer_to, draft_answer, label_message
from agents.run import AgentRun
from agents.testing import AgentResult, Parked, assert_replays, run_agent
from tests.support.mail_servers import DATA, MESSAGE, TOKEN, GmailServer, GraphServer, serving_mail
from tests.support.tools import Called, call

pytestmark = pytest.mark.django_db
DRAFT = {"text": "On Friday, yes."}


@pytest.fixture
def gmail(monkeypatch: pytest.MonkeyPatch) -> Iterator[GmailServer]:
    box = GmailServer()
    with serving_mail(box, monkeypatch):
        yield box


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Iterator[GraphServer]:
    box = GraphServer()
    with serving_mail(box, monkeypatch):
        yield box


def using(name: str, *calls: Any, data: Any = DATA, **more: Any) -> Called:
    return call(name, *calls, data=data, connections=("mail",), **more)


def step(body: Any, *arguments: Any, effect: Any = "idempotent", data: Any = DATA) -> AgentResult:
    def act(run: AgentRun) -> Any:
        return run.step("act", body, run, *arguments, effect=effect)

    return run_agent(
        Agent(name="writer", body=act, durable=True, connections=MayUse(names={"mail": "mail"})), data=data
    )


def test_gmail_gets_labels_of_its_own_once_also_in_a_run_that_has_seen_the_message(gmail: GmailServer) -> None:
    done = using("label_mail", {"labels": ["Invoice", "To answer"]}, {"labels": ["Invoice"]}, is_tainted=True)

    assert done.results == ["It is labelled."] * 2
    assert gmail.labels == {"Wakeful/Invoice": "Label_0", "Wakeful/To answer": "Label_1"}
    assert gmail.on_message == ["Label_0", "Label_1"]
    assert gmail.tokens == {f"Bearer {TOKEN}"}
    assert {path for _, path in gmail.written} == {"/labels", "/messages/m0/modify"}


def test_microsoft_gets_categories_beside_those_that_are_there(graph: GraphServer) -> None:
    graph.on_message = ["Blue"]

    done = using("label_mail", {"labels": ["Invoice"]}, {"labels": ["Invoice"]}, is_tainted=True)

    assert done.results == ["It is labelled."] * 2
    assert graph.on_message == ["Blue", "Wakeful/Invoice"]
    assert graph.written == [("PATCH", "/messages/m%2F0")]


def test_categories_that_a_person_sets_meanwhile_stay(graph: GraphServer) -> None:
    answer, changes = graph.answer, iter([True])

    def changing(method: str, *more: Any) -> Any:
        if method == "PATCH" and next(changes, False):
            graph.on_message, graph.version = ["Red"], 2
        return answer(method, *more)

    graph.answer = changing  # type: ignore[assignment,method-assign]

    step(label_message, ["Invoice"])

    assert graph.on_message == ["Red", "Wakeful/Invoice"]


def test_a_draft_stands_in_its_thread_and_goes_to_whom_the_message_names(gmail: GmailServer) -> None:
    gmail.message["reply_to"] = "Desk <Desk@example.org>"

    done = using("draft_mail", DRAFT)

    draft = gmail.draft()
    assert done.results == ["The draft is saved. A person may send it."]
    assert gmail.drafts[0]["threadId"] == "t1"
    assert (draft["To"], draft["Subject"]) == ("desk@example.org", "Re: Grüße: when do you come?")
    assert (draft["In-Reply-To"], draft["References"]) == (MESSAGE, f"<zero@example.org> {MESSAGE}")
    assert draft["Cc"] is draft["Bcc"] is None
    assert draft.get_content().strip() == "On Friday, yes."
    assert gmail.written == [("POST", "/drafts")]


def test_a_draft_at_microsoft_is_made_by_reply(graph: GraphServer) -> None:
    assert step(draft_answer, "Yes.", effect="at_most_once").result == ["anna@example.org"]
    assert graph.drafts == [{"comment": "Yes."}]
    assert graph.written == [("POST", "/messages/m%2F0/createReply")]


def test_a_model_that_has_seen_the_message_asks_before_it_drafts(gmail: GmailServer) -> None:
    key = "approval:llm asker#1: draft_mail call-0-0"
    denied = using("draft_mail", DRAFT, is_tainted=True, waits={key: "denied"})
    assert not gmail.drafts and "saved" not in str(denied.results)

    using("draft_mail", DRAFT, is_tainted=True, waits={key: "approved"})
    assert len(gmail.drafts) == 1


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(403, StepFailed), (429, Retry), (503, Parked)],  # not done; not done, later; it may have been done
)
def test_a_draft_is_never_made_twice(gmail: GmailServer, status: int, outcome: type[Exception]) -> None:
    gmail.statuses = [status]

    def draft(run: AgentRun) -> Any:
        try:
            return draft_answer(run, "Yes.")
        except MailRefused as refused:
            raise Permanent(str(refused)) from refused

    with pytest.raises(outcome):
        step(draft, effect="at_most_once")
    assert len(gmail.written) == 1


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"from": {"name": "Anna", "address": "else@example.org"}}, "no such message of this sender"),
        ({"message_id": "<other@example.org>"}, "no such message of this sender"),
        ({"message_id": "sha256:1"}, "not woken by a message"),
        ({"is_automatic": True}, "gets no answer"),
        ({"list_id": "<news.example.org>"}, "gets no answer"),
    ],
)
def test_an_event_chooses_no_other_message(gmail: GmailServer, changed: dict[str, Any], reason: str) -> None:
    done = using("draft_mail", DRAFT, data={**DATA, **changed})

    assert reason in str(done.results)
    assert not gmail.written


@pytest.mark.parametrize("people", [", ".join(f"p{number}@example.org" for number in range(11)), "x@y, <<>>"])
def test_a_message_that_names_a_crowd_or_something_unreadable_gets_no_draft(gmail: GmailServer, people: str) -> None:
    gmail.message["reply_to"] = people
    with pytest.raises(StepFailed, match="addresses to answer to"):
        step(draft_answer, "Yes.")
    assert not gmail.written


def test_a_message_to_oneself_is_there_twice_and_one_of_another_thread_is_left_alone(gmail: GmailServer) -> None:
    gmail.copies = 2
    step(label_message, ["Invoice"])
    assert gmail.on_message == ["Label_0"]

    gmail.threads["m1"] = "t2"
    with pytest.raises(StepFailed, match="several messages"):
        step(label_message, ["Other"])
    assert gmail.on_message == ["Label_0"]


def test_labels_are_bounded_and_only_wakefuls_own(gmail: GmailServer) -> None:
    for wrong in ("../TRASH", "a/b", "", "x" * 41):
        with pytest.raises(StepFailed, match="no label"):
            step(label_message, [wrong])
    gmail.labels = {f"Wakeful/{number}": str(number) for number in range(100)}
    with pytest.raises(StepFailed, match="at most 100"):
        step(label_message, ["One more"])
    step(label_message, ["7"])
    assert gmail.on_message == ["7"]


def test_header_fields_of_a_draft_are_whole_whatever_the_message_has() -> None:
    long = [f"<{'x' * 200}{number}@example.org>" for number in range(50)]
    mail = Mail.of_data({**DATA, "subject": "Hi\r\nBcc: all@example.org " + "ü" * 500, "references": [*long, "no id"]})

    raw = answer_to(mail, ["anna@example.org"], ".\r\nFrom x\r\n" + "long " * 1000)

    head = raw.partition(b"\r\n\r\n")[0].decode("ascii")
    lines = head.split("\r\n")
    assert not any(line.lower().startswith("bcc") for line in lines)
    assert [line for line in lines if line.startswith("In-Reply-To")] == [f"In-Reply-To: {MESSAGE}"]
    [references] = [line for line in lines if line.startswith("References: ")]
    assert references.endswith(f"{long[-1]} {MESSAGE}") and len(references) < 998
    assert max(map(len, raw.split(b"\r\n"))) < 998


def test_a_connection_to_neither_is_refused(gmail: GmailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.mail_accounts.GMAIL", "https://gmail.googleapis.com")
    with pytest.raises(StepFailed, match="neither Google nor Microsoft"):
        step(label_message, ["Invoice"])


def test_a_replay_writes_nothing(gmail: GmailServer) -> None:
    assert_replays(step(draft_answer, "Yes.", effect="at_most_once"))
    assert len(gmail.drafts) == 1

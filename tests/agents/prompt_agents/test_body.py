"""What a run of a prompt agent does: its tools, its answer, and what woke it."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db.models.functions import Now
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from agents import AgentRun, Fire, Quiet, tool
from agents.agent import Agent
from agents.exceptions import Permanent
from agents.gate_run import GateRun
from agents.journal.protocol import Answer
from agents.kernel.reply_place import ReplyPlace
from agents.llm.providers.builtin import builtin_model
from agents.models import Checklist, ChecklistItem, Session
from agents.prompt_agents.body import MOST_CHARACTERS, agent_of
from agents.prompt_agents.definition import Definition
from agents.run import Event
from agents.testing import AgentResult, ask_gate, assert_replays, run_agent
from tests.support.llm import Turns
from tests.support.mail_servers import DATA, GmailServer, serving_mail
from tests.support.prompt_agents import register_mail_tools

HOUR = timedelta(hours=1)
NEWS = {"notify": True, "urgency": "high", "text": "Fix billing first"}
TICK = "schedule.fired"


def triage(**fields: Any) -> Agent:
    return agent_of("triage", Definition(**{"instructions": "Tell me what to fix first.", **fields}))


def says(**verdict: Any) -> TestModel:
    return TestModel(custom_output_args=verdict, call_tools=[])


def run(agent: Agent, model: Any, **given: Any) -> AgentResult:
    done = run_agent(agent, model=model, **given)
    assert_replays(done)
    return done


class Prompted:
    """A model that keeps its prompt and answers its verdict."""

    def __init__(self, **verdict: Any) -> None:
        self.verdict = {"notify": False, **verdict}
        self.prompt = ""
        self.tools: list[str] = []
        self.model = FunctionModel(self.answer)

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        [request] = [message for message in messages if isinstance(message, ModelRequest)]
        self.prompt = "\n".join(
            [str(request.instructions), *(str(getattr(part, "content", "")) for part in request.parts)]
        )
        self.tools = [one.name for one in info.function_tools]
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, self.verdict)])


@pytest.fixture
def checklist(db: None) -> Checklist:
    checklist = Checklist.objects.create(agent="triage")
    ChecklistItem.objects.create(checklist=checklist, text="failed runs", position=0)
    ChecklistItem.objects.create(checklist=checklist, text="backups", every=HOUR, due_at=Now() + HOUR, position=1)
    return checklist


# Its answer


@pytest.mark.django_db
def test_a_verdict_with_notify_sends_its_notification() -> None:
    done = run(triage(notify_to=("ops", "ada")), says(**NEWS), type=TICK)

    [notice] = done.notifications
    assert (notice.text, notice.urgency, notice.to) == ("Fix billing first", "high", ("ops", "ada"))
    assert done.result["notify"] is True


@pytest.mark.django_db
def test_a_verdict_without_notify_sends_nothing() -> None:
    done = run(triage(emit="triage.done"), says(notify=False), type=TICK)

    assert (done.notifications, done.emitted) == ([], [])


@pytest.mark.django_db
def test_an_agent_that_does_not_notify_emits_an_event_instead() -> None:
    done = run(triage(notify=False, emit="triage.done"), says(**NEWS), type=TICK)

    assert done.notifications == []
    [emitted] = done.emitted
    assert emitted.type == "triage.done"
    assert emitted.data == {"agent": "triage", "text": "Fix billing first", "urgency": "high", "items": []}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        ("approved", ["Fix billing first"]),
        (Answer(decision="edited", arguments={"text": "Calm down", "urgency": "low"}), ["Calm down"]),
        ("denied", []),
        ("expired", []),
    ],
)
def test_with_ask_first_a_person_decides_what_is_sent(answer: Any, sent: list[str]) -> None:
    done = run_agent(triage(ask_first=True), model=says(**NEWS), type=TICK, waits={"approval#1": answer})

    assert [notice.text for notice in done.notifications] == sent


@pytest.mark.django_db
def test_arguments_that_cannot_be_sent_fail_the_run() -> None:
    edited = Answer(decision="edited", arguments={"text": "", "urgency": "low"})

    with pytest.raises(Permanent, match='must be {"text": "…"'):
        run_agent(triage(ask_first=True), model=says(**NEWS), type=TICK, waits={"approval#1": edited})


# Its tools


@pytest.mark.django_db
def test_a_prompt_agent_has_the_tools_that_it_names_and_no_others() -> None:
    @tool(effect="read")
    def failed_runs(ctx: RunContext[AgentRun]) -> str:
        """The failed runs."""
        return f"of {ctx.deps.agent}"

    @tool(effect="read")
    def other() -> str:
        """Another."""
        return ""

    prompted = Prompted()

    run(triage(tools=("failed_runs",)), prompted.model, type=TICK)

    assert prompted.tools == ["failed_runs"]


@pytest.mark.django_db
def test_a_tool_that_is_gone_fails_the_run_and_is_named() -> None:
    with pytest.raises(Permanent, match="there is no tool failed_runs"):
        run_agent(triage(tools=("failed_runs",)), model=says(**NEWS), type=TICK)


# What woke it


@pytest.mark.django_db
def test_an_event_is_data_from_outside_and_taints_the_run() -> None:
    prompted = Prompted()

    done = run(triage(), prompted.model, type="invoice.overdue", source="billing", data={"number": 7})

    assert "Tell me what to fix first." in prompted.prompt
    assert "<untrusted-data" in prompted.prompt
    assert '"number": 7' in prompted.prompt
    assert done.is_tainted


@pytest.mark.django_db
def test_a_tick_is_no_data_and_taints_nothing() -> None:
    prompted = Prompted()

    done = run(triage(), prompted.model, type=TICK, data={"schedule": "triage"})

    assert "untrusted-data" not in prompted.prompt
    assert not done.is_tainted


@pytest.mark.django_db
def test_a_wake_that_the_agent_set_brings_its_reminder_and_the_earlier_event() -> None:
    prompted = Prompted()
    tick = {"schedule": "triage", "nominal": "…", "due": "…"}

    done = run(triage(), prompted.model, type="run.wakeup", data={**tick, "reminder": "look at the deploy"})
    assert "look at the deploy" in prompted.prompt
    assert not done.is_tainted
    done = run(triage(), prompted.model, type="run.wakeup", data={"number": 7, "reminder": "look at invoice"})
    assert '"number": 7' in prompted.prompt
    assert done.is_tainted


@pytest.mark.django_db
def test_a_large_event_is_cut_off() -> None:
    prompted = Prompted()

    run(triage(), prompted.model, data={"text": "x" * 2 * MOST_CHARACTERS})

    assert f"cut off after {MOST_CHARACTERS:,}" in prompted.prompt
    assert len(prompted.prompt) < 1.2 * MOST_CHARACTERS


def test_a_tick_looks_at_what_is_due_and_anything_else_at_all_items(checklist: Checklist) -> None:
    for type, looked in ((TICK, ["failed runs"]), ("manual.fired", ["failed runs", "backups"])):
        prompted = Prompted(items=[{"item": 1, "outcome": "ok"}, {"item": 2, "outcome": "ok"}])
        run(triage(), prompted.model, type=type)
        assert [text for text in ("failed runs", "backups") if f". {text}" in prompted.prompt] == looked


def test_the_outcomes_of_the_items_are_recorded(checklist: Checklist) -> None:
    run(triage(), says(notify=False, items=[{"item": 1, "outcome": "news", "text": "3"}]), type=TICK)

    item = ChecklistItem.objects.get(text="failed runs")
    assert (item.last_outcome, item.last_text) == ("news", "3")


# Its gate


def test_a_silenced_checklist_keeps_every_event_quiet(checklist: Checklist) -> None:
    Checklist.objects.update(silenced_until=Now() + HOUR)

    for type in (TICK, "invoice.overdue"):
        answer = ask_gate(triage(), type=type)
        assert isinstance(answer, Quiet)
        assert answer.reason.startswith("its checklist is silenced until ")


def test_a_tick_without_a_due_item_is_quiet_and_an_event_is_not(checklist: Checklist) -> None:
    ChecklistItem.objects.update(due_at=Now() + HOUR, every=HOUR)

    assert isinstance(ask_gate(triage(), type=TICK), Quiet)
    assert ask_gate(triage(), type="invoice.overdue") == Fire("an event of type invoice.overdue")


# The built-in model


@pytest.mark.django_db
def test_the_built_in_model_reports_the_results_of_the_tools_and_that_it_does_not_judge() -> None:
    @tool(effect="read")
    def failed_runs() -> list[str]:
        """The failed runs."""
        return ["billing: ConnectionError, 3 times"]

    @tool(effect="at_most_once", dangerous=True)
    def refund(invoice: int) -> str:
        """Refund an invoice."""
        raise AssertionError("a model that cannot judge must not call it")

    done = run(triage(tools=("failed_runs", "refund")), builtin_model(), type=TICK)

    [notice] = done.notifications
    assert "which does not judge" in notice.text
    assert "billing: ConnectionError, 3 times" in notice.text


@pytest.mark.django_db
def test_the_built_in_model_is_silent_if_the_tools_are() -> None:
    @tool(effect="read")
    def failed_runs() -> list[str]:
        """The failed runs."""
        return []

    assert run(triage(tools=("failed_runs",)), builtin_model(), type=TICK).notifications == []


def test_an_event_is_looked_at_although_a_tick_came_after_it(checklist: Checklist) -> None:
    ChecklistItem.objects.update(due_at=Now() + HOUR)
    events = [
        Event(id=uuid4(), type=type, source="test", time=datetime.now(UTC), data=None)
        for type in ("invoice.overdue", TICK)
    ]
    run = GateRun(agent="triage", trigger="triage", read_events=lambda: events, read_now=lambda: datetime.now(UTC))

    assert triage().gate(run) == Fire("an event of type invoice.overdue")  # type: ignore[misc]


# Its connections, and the conversation of a thread


@pytest.mark.django_db
def test_its_tools_act_by_the_connection_that_was_chosen_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    register_mail_tools()
    agent = triage(tools=("label_mail",), connections={"mail": "shop-mail"})
    turns = Turns([("label_mail", {"labels": ["Invoice"]})], [("final_result", {"notify": False})])
    box = GmailServer()

    with serving_mail(box, monkeypatch):
        run(agent, turns.model, type="mail.received", data=DATA)

    assert set(box.leased) == {"shop-mail"} and len(box.on_message) == 1


@pytest.mark.django_db
@pytest.mark.parametrize("acts_for, writes", [("ada", True), ("bob", False), ("", False)])
def test_a_persons_connection_is_used_by_an_agent_that_acts_for_them_alone(
    acts_for: str, writes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_mail_tools()
    agent = triage(tools=("label_mail",), connections={"mail": "mail"}, acts_for=acts_for)
    turns = Turns([("label_mail", {"labels": ["Invoice"]})], [("final_result", {"notify": False})])
    box = GmailServer()
    box.owner = "ada"

    with serving_mail(box, monkeypatch):
        run_agent(agent, model=turns.model, type="mail.received", data=DATA)

    assert bool(box.written) is writes


@pytest.mark.django_db
def test_a_tool_without_a_chosen_connection_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    register_mail_tools()
    box = GmailServer()
    turns = Turns([("label_mail", {"labels": ["Invoice"]})], [("final_result", {"notify": False})])

    with serving_mail(box, monkeypatch):
        run_agent(triage(tools=("label_mail",)), model=turns.model, type="mail.received", data=DATA)

    assert box.asked == []


@pytest.mark.django_db
def test_each_thread_is_a_conversation_and_a_tick_has_that_of_the_agent() -> None:
    place = ReplyPlace(kind="slack-thread", to={}, name="Slack thread in C1", thread="slack:C1:1.1")
    agent = triage(by_thread=True, session="desk")

    run(agent, says(notify=False), type="message", data={"text": "hello"}, reply_place=place)
    run(agent, says(notify=False), type=TICK)

    assert set(Session.objects.values_list("name", flat=True)) == {"slack:C1:1.1", "desk"}

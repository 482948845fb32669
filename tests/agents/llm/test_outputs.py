"""Output functions: called once, under the tool cap, and after an approval where they are dangerous."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as LlmAgent
from pydantic_ai import ModelRetry, NativeOutput, PromptedOutput, RunContext, TextOutput, ToolOutput
from pydantic_ai.capabilities import Hooks
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from agents.llm.outputs import output_function
from agents.models import Session
from runs.actions.approve import decide
from runs.models import Approval, Run, Step
from tests.support.durable import Lab, lab

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["lab"]


class Sent(BaseModel):
    number: int


sent: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_is_sent() -> None:
    sent.clear()


def send_invoice(number: int) -> Sent:
    """Send the invoice of this number."""
    sent.append(number)
    return Sent(number=number)


async def send_later(ctx: RunContext[Any], number: int) -> Sent:
    """Send the invoice of this number."""
    return send_invoice(number)


def send_text(text: str) -> Sent:
    return send_invoice(int(text))


@output_function(effect="at_most_once", dangerous=True)
def send_dangerously(number: int) -> Sent:
    """Send the invoice of this number."""
    return send_invoice(number)


@output_function(effect="transactional")
def book(number: int) -> str:
    """Book."""
    Session.objects.create(name=f"booked-{number}")
    if Session.objects.count() and number == 1:
        raise ModelRetry("not 1")
    return "booked"


class Numbers:
    """A model that answers with these numbers in turn, and the messages that it got."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers
        self.messages: list[ModelMessage] = []
        self.model = FunctionModel(self.answer, model_name="numbers")

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.messages = messages
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        number = self.numbers[turn]
        if info.output_tools:
            call = ToolCallPart(info.output_tools[0].name, {"number": number}, f"call-{turn}")
            return ModelResponse(parts=[call])
        is_object = info.model_request_parameters.output_mode in ("native", "prompted")
        return ModelResponse(parts=[TextPart(f'{{"number": {number}}}' if is_object else str(number))])

    def agent(self, output_type: Any) -> LlmAgent[Any, Any]:
        return LlmAgent(self.model, name="sender", output_type=output_type)


def twice_replayed(lab: Lab, llm: Any, **options: Any) -> Run:
    def body(run: Any) -> Any:
        output = run.llm(llm, "Send it.", **options).output
        run.sleep("1h")
        run.sleep("1h", key="2")
        return output.model_dump() if isinstance(output, Sent) else output

    return lab.later(lab.later(lab.run(body)))


@pytest.mark.parametrize(
    "output_type",
    [
        send_invoice,
        send_later,
        [send_invoice, int],
        ToolOutput(send_invoice, name="send"),
        TextOutput(send_text),
        PromptedOutput(send_invoice),
    ],
    ids=["function", "async", "union", "ToolOutput", "TextOutput", "PromptedOutput"],
)
def test_an_output_function_is_called_once_and_a_replay_is_given_what_it_returned(lab: Lab, output_type: Any) -> None:
    run = twice_replayed(lab, Numbers(7).agent(output_type))

    assert (run.status, run.error, run.result, sent) == ("succeeded", "", {"number": 7}, [7])
    assert Step.objects.filter(run=run, key__contains="send_").count() == 1


def test_the_effect_of_an_output_function_is_that_of_its_declaration(lab: Lab) -> None:
    numbers = Numbers(1, 2)
    run = twice_replayed(lab, numbers.agent(book))

    assert (run.status, run.result) == ("succeeded", "booked")
    assert list(Session.objects.values_list("name", flat=True)) == ["booked-2"]  # what was refused left nothing


def test_an_output_function_outside_of_the_tool_cap_is_refused_before_the_model_is_called(lab: Lab) -> None:
    numbers = Numbers(7)

    run = lab.run(lambda run: run.llm(numbers.agent(send_invoice), "q").output, policy={"tools": [], "retries": 3})

    assert (run.status, sent, numbers.messages) == ("failed", [], [])
    assert "output function 'send_invoice' is outside of the tool cap" in run.error


def test_an_output_function_that_the_cap_names_is_called(lab: Lab) -> None:
    lab.run(lambda run: run.llm(Numbers(7).agent(send_invoice), "q").output.number, policy={"tools": ["send_invoice"]})

    assert sent == [7]


def decided(lab: Lab, numbers: Numbers, **decision: Any) -> Run:
    llm = numbers.agent(send_dangerously)
    run = lab.run(lambda run: run.llm(llm, "q", untrusted="send 7").output.number)
    assert (run.status, sent) == ("waiting", [])
    decide(Approval.objects.get(wait__run=run).pk, by="ann", **decision)
    return lab.go_on(run)


def test_a_dangerous_output_function_needs_approval_in_a_tainted_run(lab: Lab) -> None:
    run = decided(lab, Numbers(7), decision="approve")

    assert (run.status, run.result, sent) == ("succeeded", 7, [7])


def test_the_model_gets_the_denial(lab: Lab) -> None:
    numbers = Numbers(7, 8)

    run = decided(lab, numbers, decision="deny", reason="not this one")

    assert (run.status, sent) == ("waiting", [])  # its next answer asks again
    assert "not this one" in str(numbers.messages[-1])


def test_the_model_gets_the_edit_and_its_next_output_needs_approval_again(lab: Lab) -> None:
    numbers = Numbers(7, 8)

    run = decided(lab, numbers, decision="edit", arguments={"number": 8})

    assert (run.status, sent) == ("waiting", [])
    assert "'number': 8" in str(numbers.messages[-1])
    decide(Approval.objects.filter(decision="").get(wait__run=run).pk, decision="approve", by="ann")
    assert (lab.go_on(run).result, sent) == (8, [8])


def test_an_output_validator_of_a_function_runs_in_its_step(lab: Lab) -> None:
    seen: list[Any] = []
    llm = Numbers(7).agent(send_invoice)

    @llm.output_validator
    def check(output: Sent) -> Sent:
        seen.append(output)
        return output

    run = twice_replayed(lab, llm)

    assert (run.status, run.result, seen) == ("succeeded", {"number": 7}, [Sent(number=7)])


def test_an_output_validator_without_a_function_runs_again_and_may_only_read(lab: Lab) -> None:
    seen: list[Any] = []
    llm = Numbers(7).agent(str)

    @llm.output_validator
    def check(output: str) -> str:
        seen.append(output)
        return output

    assert (twice_replayed(lab, llm).result, seen) == ("7", ["7", "7", "7"])

    @llm.output_validator
    def write(output: str) -> str:
        Session.objects.create(name="x")
        return output

    assert "may only read" in lab.run(lambda run: run.llm(llm, "q").output).error


def test_functions_that_cannot_be_distinguished_are_refused_by_name(lab: Lab) -> None:
    def other() -> Callable[[int], str]:
        def send_invoice(number: int) -> str:
            """Send it otherwise."""
            return "sent"

        return send_invoice

    several: Any = [send_invoice, Sent]
    for output_type, message in [
        (NativeOutput(several), "Give each its ToolOutput"),
        ([send_invoice, other()], "needs a name of its own"),
    ]:
        llm = Numbers(7).agent(output_type)
        run = lab.run(lambda run, llm=llm: run.llm(llm, "q").output)

        assert (run.status, sent) == ("failed", [])
        assert message in run.error


@pytest.mark.parametrize(
    ("when", "shown", "status", "expected"),
    [("after_output_validate", 99999, "succeeded", [99999]), ("before_output_process", 7, "failed", [])],
)
def test_a_function_is_called_with_the_output_that_a_person_was_shown_or_not_at_all(
    lab: Lab, when: str, shown: int, status: str, expected: list[int]
) -> None:
    hooks: Hooks[Any] = Hooks()

    @getattr(hooks.on, when)  # type: ignore[untyped-decorator]
    def becomes_much(ctx: Any, *, output_context: Any, output: Any) -> Any:
        return 99999

    llm = LlmAgent(Numbers(7).model, name="sender", output_type=send_dangerously, capabilities=[hooks])
    run = lab.run(lambda run: run.llm(llm, "q", untrusted="send 7").output.number)
    approval = Approval.objects.get(wait__run=run)
    assert (approval.arguments, sent) == ({"number": shown}, [])
    decide(approval.pk, decision="approve", by="ann")
    run = lab.go_on(run)

    assert (run.status, sent) == (status, expected)
    assert ("as another one" in run.error) == (status == "failed")

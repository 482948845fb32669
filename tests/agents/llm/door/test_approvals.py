"""What a person decides about a call of a tool: it is bound to the arguments, validated, and used once; loops end all the same."""

from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel
from pydantic_ai import Agent as LlmAgent
from pydantic_ai.capabilities import Hooks

from agents.agent import Agent
from agents.journal.protocol import Answer
from agents.testing import Crashed, Journal, run_agent
from runs.actions.approve import Choice, decide
from runs.models import Approval, Run
from tests.support.durable import Lab, lab
from tests.support.examples import some_cases
from tests.support.llm import Turns

__all__ = ["lab"]
pytestmark = pytest.mark.django_db(transaction=True)

FIRST, SECOND = "approval:llm payer#1: pay call-0-0", "approval:llm payer#1: pay call-1-0"


def payer(*turns: Any) -> tuple[Agent, list[int]]:
    script, paid = Turns(*turns), []
    llm = LlmAgent(script.model, name="payer")

    @llm.tool_plain(metadata={"dangerous": True})
    def pay(cents: int) -> str:
        paid.append(cents)
        return "ok"

    return Agent(name="clerk", body=lambda run: run.llm(llm, "Pay?", untrusted="x").output, durable=True), paid


def test_edited_arguments_are_validated_like_the_models_own() -> None:
    agent, paid = payer([("pay", {"cents": 1})], [("pay", {"cents": 2})], "done")
    wrong = Answer(decision="edited", arguments={"cents": "a lot"})

    done = run_agent(agent, waits={FIRST: wrong, SECOND: "approved"})

    assert (done.result, paid) == ("done", [2])  # the model got the error, and its next call needed approval again


def test_each_call_needs_approval_with_its_own_arguments() -> None:
    agent, paid = payer([("pay", {"cents": 1})], [("pay", {"cents": 1})], "done")

    run_agent(agent, waits={FIRST: "approved", SECOND: "denied"})

    assert paid == [1]


def test_the_same_result_three_times_ends_the_run_across_approvals_and_crashes() -> None:
    agent, paid = payer(*[[("pay", {"cents": 1})]] * 9)
    journal = Journal()
    waits = {f"approval:llm payer#1: pay call-{number}-0": "approved" for number in range(9)}
    with pytest.raises(Crashed):
        run_agent(agent, journal=journal, waits=waits, crash_after="llm payer#1:pay call-1-0")

    with pytest.raises(Exception, match="goes round in circles"):
        run_agent(agent, journal=journal, waits=waits)
    assert paid == [1, 1, 1]


def test_a_call_made_before_the_run_was_tainted_needs_no_approval_on_a_replay() -> None:
    script, paid = Turns([("pay", {"cents": 1})], "done"), []
    llm = LlmAgent(script.model, name="payer")

    @llm.tool_plain(metadata={"dangerous": True})
    def pay(cents: int) -> str:
        paid.append(cents)
        return "ok"

    def body(run: Any) -> Any:
        answer = run.llm(llm, "Pay.").output
        run.step("taint", run.taint)
        run.step("after", lambda: None)
        return answer

    agent, journal = Agent(name="clerk", body=body, durable=True), Journal()
    with pytest.raises(Crashed):
        run_agent(agent, journal=journal, crash_after="taint")
    journal.run["is_tainted"] = True

    assert run_agent(agent, journal=journal).result == "done"
    assert paid == [1]


@pytest.mark.parametrize(
    ("decision", "arguments", "expected"), [("deny", None, []), ("edit", {"cents": 1}, [1]), ("approve", None, [500])]
)
@pytest.mark.parametrize("metadata", [{}, {"dangerous": False}])
def test_a_decision_counts_although_the_tool_is_no_longer_dangerous(
    lab: Lab, metadata: dict[str, Any], decision: Choice, arguments: Any, expected: list[int]
) -> None:
    paid: list[int] = []

    def declared(metadata: dict[str, Any]) -> LlmAgent:
        llm = LlmAgent(Turns([("pay", {"cents": 500})], "done").model, name="payer")

        @llm.tool_plain(metadata=metadata)
        def pay(cents: int) -> str:
            paid.append(cents)
            return "ok"

        return llm

    before, after = declared({"dangerous": True}), declared(metadata)
    run = lab.run(lambda run: run.llm(before, "Pay?", untrusted="x").output)
    lab.declare(lambda run: run.llm(after, "Pay?", untrusted="x").output)
    decide(Approval.objects.get(wait__run=run).pk, decision=decision, by="ann", arguments=arguments)
    run = lab.go_on(run)

    assert (run.status, paid) == ("succeeded", expected)


def test_a_tool_that_is_no_longer_dangerous_does_not_ask_about_its_next_call(lab: Lab) -> None:
    paid: list[int] = []

    def declared(metadata: dict[str, Any]) -> LlmAgent:
        llm = LlmAgent(Turns([("pay", {"cents": 1})], [("pay", {"cents": 2})], "done").model, name="payer")

        @llm.tool_plain(metadata=metadata)
        def pay(cents: int) -> str:
            paid.append(cents)
            return "ok"

        return llm

    before, after = declared({"dangerous": True}), declared({})
    run = lab.run(lambda run: run.llm(before, "Pay?", untrusted="x").output)
    lab.declare(lambda run: run.llm(after, "Pay?", untrusted="x").output)
    decide(Approval.objects.get(wait__run=run).pk, decision="deny", by="ann")
    run = lab.go_on(run)

    assert (run.status, paid, Approval.objects.count()) == ("succeeded", [2], 1)


# What a person is shown is what is done


def becomes_much(ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
    return {"cents": 99999}


def grown_by_a_hook(when: str, paid: list[Any]) -> LlmAgent:
    hooks: Hooks[Any] = Hooks()
    getattr(hooks.on, when)(becomes_much)
    llm = LlmAgent(Turns([("pay", {"cents": 500})], "done").model, name="payer", capabilities=[hooks])

    @llm.tool_plain(metadata={"dangerous": True})
    def pay(cents: int) -> str:
        paid.append(cents)
        return "ok"

    return llm


def shown_in(run: Run) -> list[Any]:
    return list(Approval.objects.filter(wait__run=run).order_by("wait__position").values_list("arguments", flat=True))


WHEN = ["before_tool_validate", "after_tool_validate", "before_tool_execute"]


@pytest.mark.parametrize("when", WHEN)
def test_a_person_sees_what_a_hook_makes_of_the_arguments(lab: Lab, when: str) -> None:
    paid: list[Any] = []
    llm = grown_by_a_hook(when, paid)
    run = lab.run(lambda run: run.llm(llm, "Pay?", untrusted="x").output)

    assert (shown_in(run), paid) == ([{"cents": 99999}], [])
    decide(Approval.objects.get(wait__run=run).pk, decision="approve", by="ann")
    assert (lab.go_on(run).status, paid) == ("succeeded", [99999])


@pytest.mark.parametrize(("then", "expected"), [("approve", [99999]), ("deny", []), ("edit", [])])
@pytest.mark.parametrize("when", some_cases(WHEN))
def test_an_edit_that_a_hook_changes_needs_approval_again(
    lab: Lab, when: str, then: Choice, expected: list[int]
) -> None:
    paid: list[Any] = []
    llm = grown_by_a_hook(when, paid)

    def body(run: Any) -> Any:
        output = run.llm(llm, "Pay?", untrusted="x").output
        run.sleep("1h")
        return output

    run = lab.run(body)
    decide(Approval.objects.get(wait__run=run).pk, decision="edit", by="ann", arguments={"cents": 7})
    run = lab.go_on(run)

    assert (run.status, shown_in(run), paid) == ("waiting", [{"cents": 99999}, {"cents": 99999}], [])
    edited = {"cents": 8} if then == "edit" else None
    decide(Approval.objects.get(wait__run=run, decision="").pk, decision=then, by="ann", arguments=edited)
    run = lab.later(lab.go_on(run))
    assert (run.status, run.error, paid) == ("succeeded", "", expected)


class Order(BaseModel):
    to: str
    cents: int = 5000


@pytest.mark.parametrize(
    ("takes", "shown"),
    [
        (Annotated[int, AfterValidator(lambda cents: cents * 1000)], {"what": 5000}),
        (float, {"what": 5}),
        (set[int], {"what": [5, 6, 7]}),
        (Order, {"to": "bob", "cents": 5000}),
    ],
    ids=["validator", "number", "set", "model"],
)
def test_a_person_sees_validated_arguments_and_defaults(lab: Lab, takes: Any, shown: Any) -> None:
    paid: list[Any] = []
    given = {"to": "bob"} if takes is Order else {"what": [7, 5, 6] if takes == set[int] else 5}
    llm = LlmAgent(Turns([("pay", given)], "done").model, name="payer")

    def pay(what: Any) -> str:
        paid.append(what)
        return "ok"

    pay.__annotations__["what"] = takes
    llm.tool_plain(metadata={"dangerous": True})(pay)
    run = lab.run(lambda run: run.llm(llm, "Pay?", untrusted="x").output)

    assert shown_in(run) == [shown]
    decide(Approval.objects.get(wait__run=run).pk, decision="approve", by="ann")
    run = lab.go_on(run)
    assert (run.status, run.error, len(paid)) == ("succeeded", "", 1)


def test_a_single_object_is_edited_in_the_form_in_which_it_is_shown(lab: Lab) -> None:
    paid: list[Order] = []
    llm = LlmAgent(Turns([("pay", {"to": "bob"})], "done").model, name="payer")

    @llm.tool_plain(metadata={"dangerous": True})
    def pay(order: Order) -> str:
        paid.append(order)
        return "ok"

    run = lab.run(lambda run: run.llm(llm, "Pay?", untrusted="x").output)
    edited = {"to": "eve", "cents": 7}
    decide(Approval.objects.get(wait__run=run).pk, decision="edit", by="ann", arguments=edited)

    assert (lab.go_on(run).status, paid) == ("succeeded", [Order(to="eve", cents=7)])


@pytest.mark.parametrize("is_made", [True, False])
def test_an_optional_argument_that_a_deploy_adds_fails_only_a_call_that_is_not_made_yet(
    lab: Lab, is_made: bool
) -> None:
    paid: list[int] = []

    def body_of(llm: LlmAgent) -> Any:
        def body(run: Any) -> Any:
            output = run.llm(llm, "Pay?", untrusted="x").output
            run.sleep("1h")
            return output

        return body

    before, after = (LlmAgent(Turns([("pay", {"cents": 5})], "done").model, name="payer") for _ in range(2))

    @before.tool_plain(metadata={"dangerous": True})
    def pay(cents: int) -> str:
        paid.append(cents)
        return "ok"

    @after.tool_plain(metadata={"dangerous": True}, name="pay")
    def pay_more(cents: int, tip: int = 100) -> str:
        paid.append(cents + tip)
        return "ok"

    run = lab.run(body_of(before))
    if is_made:
        decide(Approval.objects.get(wait__run=run).pk, decision="approve", by="ann")
        run = lab.go_on(run)
    lab.declare(body_of(after))
    if not is_made:
        decide(Approval.objects.get(wait__run=run).pk, decision="approve", by="ann")
        run = lab.go_on(run)
        assert (run.status, paid) == ("failed", []) and "with other arguments" in run.error
        return
    run = lab.later(run)
    assert (run.status, run.error, paid) == ("succeeded", "", [5])


@pytest.mark.parametrize("effect", ["idempotent", "transactional"])
def test_a_call_that_failed_is_not_made_again_with_arguments_that_no_person_has_seen(lab: Lab, effect: str) -> None:
    paid: list[int] = []

    def body_of(cents_today: int, *, fails: bool) -> Any:
        llm = LlmAgent(Turns([("pay", {"invoice": 7})], "done").model, name="payer")

        @llm.tool_plain(metadata={"effect": effect, "dangerous": True})
        def pay(invoice: int, cents: int = cents_today) -> str:
            if fails:
                raise ConnectionError("the bank is away")
            paid.append(cents)
            return "ok"

        return lambda run: run.llm(llm, "Pay?", untrusted="x").output

    run = lab.run(body_of(5, fails=True), policy={"retries": 2})
    decide(Approval.objects.get(wait__run=run).pk, decision="approve", by="ann")
    assert lab.go_on(run).status == "queued"
    lab.declare(body_of(99999, fails=False))
    run = lab.later(run)

    assert (run.status, paid) == ("failed", []) and "with other arguments" in run.error

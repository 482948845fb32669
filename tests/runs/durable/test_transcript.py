"""The conversation of a run with its models, read from its journal."""

from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as LlmAgent
from pydantic_ai import ModelRetry

from agents import AgentRun, Permanent
from agents.llm.providers.builtin import builtin_model
from runs.actions.approve import decide
from runs.actions.fork import fork
from runs.durable.transcript import (
    Call,
    Part,
    Transcript,
    Turn,
    transcript_of,
    usage_of,
    with_usage,
)
from runs.exceptions import IllegalState
from runs.models import Approval, Run, Step, Wait
from tests.support.durable import Lab, lab
from tests.support.llm import Turns

__all__ = ["lab"]
pytestmark = pytest.mark.django_db(transaction=True)


def texts(parts: Any) -> list[tuple[str, str]]:
    return [(part.kind, part.text) for part in parts]


def call_of(run: Run) -> Call:
    [call] = transcript_of(run).calls
    return call


def turns_of(run: Run) -> list[Turn]:
    return list(call_of(run).turns)


def priced(run: Run, **usage: Any) -> None:
    """As if a provider had answered at this price."""
    for step in Step.objects.filter(run=run, kind="model"):
        step.usage = {**(step.usage or {}), **usage}
        step.save(update_fields=["usage"])


def test_each_turn_has_its_prompt_its_answer_and_its_tools(lab: Lab) -> None:
    llm = LlmAgent(Turns([("find", {"name": "Ann"})], ("she is there", "found Ann")).model, name="finder")

    @llm.instructions
    def instructions() -> str:
        return "Find people."

    @llm.tool_plain
    def find(name: str) -> dict[str, str]:
        """Find a person."""
        return {"found": name}

    run = lab.run(lambda run: run.llm(llm, "Where is Ann?").output)

    first, second = turns_of(run)
    assert first.instructions == "Find people."
    assert [tool["name"] for tool in first.tools] == ["find"]
    assert (texts(first.prompt), texts(first.answer)) == ([("user", "Where is Ann?")], [])
    [called] = first.tool_calls
    assert (called.tool, called.arguments, called.result) == ("find", {"name": "Ann"}, {"found": "Ann"})
    assert (called.status, called.effect, called.attempts) == ("done", "idempotent", 1)
    assert (second.instructions, second.tools, texts(second.prompt)) == ("", [], [])
    assert texts(second.answer) == [("thinking", "she is there"), ("answer", "found Ann")]
    assert (second.model, second.number, second.claim, second.replayed_by) == ("scripted", 2, 1, [])


def test_the_part_of_a_prompt_behind_the_fence_is_untrusted(lab: Lab) -> None:
    llm = LlmAgent(Turns("ok").model, name="reader")

    run = lab.run(lambda run: run.llm(llm, "Read this.", untrusted="Pay <b>now</b>").output)

    [turn] = turns_of(run)
    assert [part.text for part in turn.prompt if part.is_untrusted] == ["Pay <b>now</b>"]
    assert turn.prompt[0].text.startswith("Read this.") and not turn.prompt[0].is_untrusted
    assert call_of(run).is_untrusted


def test_a_fence_with_another_mark_marks_nothing(lab: Lab) -> None:
    llm = LlmAgent(Turns("ok").model, name="reader")
    faked = '<untrusted-data mark="1">\nhello\n</untrusted-data mark="1">'

    run = lab.run(lambda run: run.llm(llm, faked).output)

    assert turns_of(run)[0].prompt == [Part(kind="user", text=faked)]


def test_the_history_that_a_call_is_given_is_shown_apart(lab: Lab) -> None:
    llm = LlmAgent(Turns("first", "second").model, name="talker")

    def body(run: AgentRun) -> Any:
        before = run.llm(llm, "one").all_messages()
        return run.llm(llm, "two", message_history=before).output

    run = lab.run(body)

    _, later = transcript_of(run).calls
    prompt = [(part.kind, part.text, part.is_history) for part in later.turns[0].prompt]
    assert prompt == [("user", "one", True), ("answer", "first", True), ("user", "two", False)]


def test_an_answer_that_does_not_fit_is_requested_again(lab: Lab) -> None:
    class Verdict(BaseModel):
        urgent: bool

    script = Turns([("final_result", {"urgent": "perhaps"})], [("final_result", {"urgent": True})])
    llm = LlmAgent(script.model, name="judge", output_type=Verdict)

    run = lab.run(lambda run: run.llm(llm, "Urgent?").output.urgent)

    first, second = turns_of(run)
    assert [(call.status, call.arguments) for call in first.tool_calls] == [("output", {"urgent": "perhaps"})]
    assert "bool_parsing" in second.prompt[0].text or "valid boolean" in second.prompt[0].text
    assert [call.status for call in second.tool_calls] == ["output"]


def test_a_tool_that_raises_model_retry_shows_a_retry(lab: Lab) -> None:
    llm = LlmAgent(Turns([("find", {"name": "Bob"})], "nobody").model, name="finder")

    @llm.tool_plain
    def find(name: str) -> str:
        raise ModelRetry(f"there is no {name}")

    run = lab.run(lambda run: run.llm(llm, "find Bob").output)

    assert [call.result for call in turns_of(run)[0].tool_calls] == ["there is no Bob"]


def test_a_call_that_waits_for_approval_leads_to_it_and_shows_what_was_edited(lab: Lab) -> None:
    llm = LlmAgent(Turns([("pay", {"cents": 900})], "paid").model, name="payer")

    @llm.tool_plain(metadata={"dangerous": True, "effect": "at_most_once"})
    def pay(cents: int) -> str:
        return f"paid {cents}"

    run = lab.run(lambda run: run.llm(llm, "Pay.", untrusted="900, please").output)

    [called] = turns_of(run)[0].tool_calls
    approval = Approval.objects.get(wait__run=run)
    assert (called.status, called.approval, called.decision) == ("open", approval.pk, "")

    decide(approval.pk, decision="edit", arguments={"cents": 1}, by="ann")
    lab.go_on(run)

    [called] = turns_of(run)[0].tool_calls
    assert (called.status, called.approval, called.decision) == ("done", approval.pk, "edit")
    assert (called.arguments, called.edited_arguments, called.result) == ({"cents": 900}, {"cents": 1}, "paid 1")


def test_a_call_that_was_denied_has_no_result(lab: Lab) -> None:
    llm = LlmAgent(Turns([("pay", {"cents": 900})], "as you like").model, name="payer")

    @llm.tool_plain(requires_approval=True)
    def pay(cents: int) -> str:
        raise AssertionError

    run = lab.run(lambda run: run.llm(llm, "Pay.").output)
    decide(Approval.objects.get(wait__run=run).pk, decision="deny", reason="too much", by="ann")
    lab.go_on(run)

    first, second = turns_of(run)
    assert [(call.status, call.result) for call in first.tool_calls] == [("denied", None)]
    assert [(part.kind, "too much" in part.text) for part in second.prompt] == [("tool-return", True)]


def test_a_turn_shows_which_claims_were_given_its_recorded_answer(lab: Lab) -> None:
    script = Turns("first")
    llm = LlmAgent(script.model, name="talker")

    def body(run: AgentRun) -> Any:
        output = run.llm(llm, "one").output
        run.sleep("1h")
        run.sleep("1h")
        return output

    run = lab.later(lab.later(lab.run(body)))

    [turn] = turns_of(run)
    assert (turn.claim, turn.replayed_by, script.asked) == (1, [2, 3], 1)


def test_a_replay_with_another_prompt_keeps_the_recorded_answer_and_shows_it(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    script = Turns("first")
    llm = LlmAgent(script.model, name="talker")
    prompts = iter(["as it was", "as it is now", "as it is now"])

    def body(run: AgentRun) -> Any:
        output = run.llm(llm, next(prompts)).output
        run.sleep("1h")
        return [output, run.llm(llm, "and now?").output]

    lab.monkeypatch.setattr(script, "turns", ("first", "never"))
    run = lab.later(lab.run(body))

    assert run.result == ["first", "first"]
    assert turns_of_first(run) == [("user", "as it was")]
    assert "llm.prompt_changed" in caplog.text


def turns_of_first(run: Run) -> list[tuple[str, str]]:
    return texts(transcript_of(run).calls[0].turns[0].prompt)


def test_a_later_request_names_those_whose_prompts_have_changed(lab: Lab) -> None:
    llm = LlmAgent(Turns([("wait", {})], "done").model, name="talker")
    hours = iter(["It is 9.", "It is 10.", "It is 11.", "It is 12."])

    @llm.instructions
    def clock() -> str:
        return next(hours)

    @llm.tool_plain(requires_approval=True)
    def wait() -> str:
        return "waited"

    run = lab.run(lambda run: run.llm(llm, "wait").output)
    decide(Approval.objects.get(wait__run=run).pk, decision="approve", by="ann")
    lab.go_on(run)

    first, second = turns_of(run)
    assert (first.drifted, second.drifted) == ([], ["request 1"])
    assert first.instructions == "It is 9."


def test_usage_is_summed_over_the_run(lab: Lab) -> None:
    llm = LlmAgent(Turns([("look", {})], "done").model, name="looker")

    @llm.tool_plain
    def look() -> int:
        return 1

    run = lab.run(lambda run: run.llm(llm, "look").output)
    priced(run, cost=None)
    before = transcript_of(run).usage
    priced(run, cost="0.0025")

    usage = transcript_of(run).usage
    assert (before.unpriced, before.cost) == (2, Decimal(0))
    assert (usage.requests, usage.cost, usage.unpriced, usage.builtin) == (2, Decimal("0.0050"), 0, 0)
    assert usage.input_tokens == sum(turn.usage.input_tokens for turn in turns_of(run)) > 0
    assert transcript_of(run).tool_calls == 1
    assert usage_of(with_usage(Run.objects.all()).get(pk=run.pk)) == usage


def test_a_run_that_called_no_model_used_none(lab: Lab) -> None:
    run = lab.run(lambda run: run.step("one", lambda: 1))

    assert transcript_of(run).calls == []
    assert usage_of(with_usage(Run.objects.all()).get(pk=run.pk)) is None


def test_the_built_in_model_is_shown_apart(lab: Lab) -> None:
    run = lab.run(lambda run: run.llm(LlmAgent(builtin_model(), name="demo"), "Say something.").output)

    usage = transcript_of(run).usage
    assert (usage.builtin, usage.unpriced) == (1, 0)
    assert usage_of(with_usage(Run.objects.all()).get(pk=run.pk)) == usage


def test_a_long_conversation_is_read_by_pages(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.durable.transcript.TURNS", 2)
    llm = LlmAgent(Turns(*[[("count", {"n": n})] for n in range(4)], "done").model, name="counter")

    @llm.tool_plain
    def count(n: int) -> int:
        return n

    run = lab.run(lambda run: run.llm(llm, "count").output)

    def page(number: int | None) -> tuple[list[int], list[Any]]:
        [call] = transcript_of(run, number).calls
        return [turn.number for turn in call.turns], [tool.result for turn in call.turns for tool in turn.tool_calls]

    assert (page(1), page(2), page(3), page(None)) == (([1, 2], [0, 1]), ([3, 4], [2, 3]), ([5], []), ([5], []))


def test_a_failed_request_gives_the_reason_why_and_how_often(lab: Lab) -> None:
    def fails(*_: Any) -> Any:
        raise Permanent("no provider")

    script = Turns("never")
    script.model.function = fails
    run = lab.run(lambda run: run.llm(LlmAgent(script.model, name="asker"), "hello").output)

    [turn] = turns_of(run)
    assert (run.status, turn.status) == ("failed", "failed")
    assert turn.error == "Permanent: no provider"


def test_an_agent_that_keeps_no_content_keeps_tokens_and_prices(lab: Lab) -> None:
    llm = LlmAgent(Turns([("pay", {"to": "Ann"})], "paid Ann").model, name="payer")

    @llm.tool_plain(requires_approval=True)
    def pay(to: str) -> str:
        return f"paid {to}"

    def body(run: AgentRun) -> None:
        run.step("mail", lambda: "of mine")
        run.llm(llm, "Pay Ann.")

    run = lab.run(body, declared={"keep_content": False}, policy={"keep_content": False})
    assert texts(turns_of(run)[0].prompt) == [("user", "Pay Ann.")]  # the journal needs it
    decide(Approval.objects.get(wait__run=run).pk, decision="approve", by="bob")
    lab.go_on(run)

    assert run.status == "succeeded"
    transcript: Transcript = transcript_of(run)
    assert (transcript.is_kept, transcript.usage.requests, transcript.tool_calls) == (False, 2, 1)
    kept = [str(list(rows.values())) for rows in (Step.objects.filter(run=run), Approval.objects, Wait.objects)]
    assert "Ann" not in "".join(kept)
    assert Step.objects.get(run=run, key="mail").output == "of mine"
    assert [turn.tool_calls[0].tool for turn in transcript.calls[0].turns if turn.tool_calls] == ["pay call-0-0"]


def test_a_failed_run_keeps_its_content_for_a_requeue(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        run.llm(LlmAgent(Turns("hello").model, name="talker"), "Ann?")
        raise Permanent("no")

    run = lab.run(body, policy={"keep_content": False})

    assert run.status == "failed"
    assert transcript_of(run).is_kept


def test_a_run_without_content_is_forked_from_its_beginning_only(lab: Lab) -> None:
    script = Turns("hello")

    def body(run: AgentRun) -> None:
        run.llm(LlmAgent(script.model, name="talker"), "Ann?")
        run.step("last", lambda: 1)

    run = lab.run(body, policy={"keep_content": False})

    with pytest.raises(IllegalState, match="keeps no content"):
        fork(run.pk, by="test", step="last")
    forked = lab.go_on(fork(run.pk, by="test"))
    assert (forked.status, script.asked) == ("succeeded", 2)


def test_turns_of_a_fork_are_those_that_were_copied(lab: Lab) -> None:
    script = Turns("hello")

    def body(run: AgentRun) -> None:
        run.llm(LlmAgent(script.model, name="talker"), "Ann?")
        run.step("last", lambda: 1)

    run = lab.run(body)
    forked = lab.go_on(fork(run.pk, by="test", step="last"))

    [turn] = turns_of(forked)
    assert (turn.claim, turn.replayed_by, script.asked) == (0, [1], 1)


def test_results_of_tools_do_not_count_as_changed_prompts(lab: Lab) -> None:
    llm = LlmAgent(Turns([("read", {})], [("wait", {})], "done").model, name="talker")

    @llm.tool_plain
    def read() -> dict[str, int]:
        return {"lines": 1, "a": 2}

    @llm.tool_plain(requires_approval=True)
    def wait() -> str:
        return "waited"

    run = lab.run(lambda run: run.llm(llm, "wait").output)
    decide(Approval.objects.get(wait__run=run).pk, decision="approve", by="ann")
    lab.go_on(run)

    assert [turn.drifted for turn in turns_of(run)] == [[], [], []]

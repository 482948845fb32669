"""run.llm(session=…): calls of several runs and agents go on with one history, whose turns stay whole and whose size stays bounded."""

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as LlmAgent
from pydantic_ai.messages import ModelRequest, UserPromptPart

from agents import AgentRun, AsyncAgentRun, Permanent
from agents.agent import Agent
from agents.journal.budget import Limits, Refusal
from agents.journal.in_memory import MemoryStore
from agents.models import Session, SessionTurn
from agents.sessions.messages import loaded, said_in
from agents.sessions.size import surplus
from agents.testing import AgentResult, Crashed, Journal, assert_replays, run_agent
from tests.support.conversing import Listener, make_session, texts_of, turns

pytestmark = pytest.mark.django_db


class Form(BaseModel):
    said: str


@pytest.fixture
def listener() -> Listener:
    return Listener()


def say(
    llm: LlmAgent[Any, Any], *prompts: str, name: str = "speaker", session: Any = "ops", **given: Any
) -> AgentResult:
    def body(run: AgentRun) -> list[str]:
        return [str(run.llm(llm, prompt, session=session, **given).output) for prompt in prompts]

    return run_agent(Agent(name=name, body=body, durable=True))


def test_a_call_without_a_session_is_fresh(listener: Listener) -> None:
    say(listener.agent(), "one", "two", session=None)

    assert listener.requests == [["> one"], ["> two"]]
    assert not Session.objects.exists()


def test_runs_and_agents_share_a_history(listener: Listener) -> None:
    say(listener.agent(), "one", "two")
    other = say(listener.agent("other"), "three", name="listener")
    say(listener.agent(), "else", session="dev")

    assert listener.requests[2] == ["> one", "re: one", "> two", "re: two", "> three"]
    assert listener.requests[3] == ["> else"]
    assert [(turn.number, turn.agent, turn.is_tainted) for turn in turns()] == [
        (1, "speaker", False), (2, "speaker", False), (3, "listener", False),
    ]  # fmt: skip
    assert turns()[2].run_id == other.journal.run["id"]
    assert_replays(other)


def test_an_async_agent_has_sessions_too(listener: Listener) -> None:
    async def body(run: AsyncAgentRun) -> str:
        await run.llm(listener.agent(), "one", session="ops")
        return str((await run.llm(listener.agent(), "two", session="ops")).output)

    assert run_agent(Agent(name="speaker", body=body, durable=True)).result == "re: two"
    assert listener.requests[1] == ["> one", "re: one", "> two"]


def test_calls_of_tools_stay_with_their_results_and_forms_end_their_turn(listener: Listener) -> None:
    say(listener.agent(output_type=Form), "look around")
    say(listener.agent(), "and now")

    call, seen, form = 'look({"number":7})', "look: seen 7", 'final_result({"said":"re: look around"})'
    assert listener.requests[-1] == [
        "> look around",
        call,
        seen,
        form,
        "final_result: Final result processed.",
        "> and now",
    ]


def test_each_agent_speaks_with_its_own_instructions_and_system_prompt(listener: Listener) -> None:
    say(listener.agent("first", instructions="be short", system_prompt="you are one"), "one")
    say(listener.agent("second", instructions="be long", system_prompt="you are two"), "two")

    assert listener.requests[1] == ["# you are two", "> one", "re: one", "> two", "! be long"]
    assert "you are" not in str([turn.messages for turn in turns()])
    assert "be short" not in str([turn.messages for turn in turns()])


def test_the_transcript_has_the_turn_and_not_the_history(listener: Listener) -> None:
    say(listener.agent(), "look one")
    done = say(listener.agent(system_prompt="you are two"), "two")

    opening = done.journal.steps["llm talker#1"].output
    assert opening["session"] == "ops"
    kept = done.journal.steps["llm talker#1:request 1"]
    assert kept.output["answer"]["parts"][0]["content"] == "re: two"


def test_a_crash_neither_repeats_nor_loses_a_turn(listener: Listener) -> None:
    def body(run: AgentRun) -> list[str]:
        return [str(run.llm(listener.agent(), prompt, session="ops").output) for prompt in ("one", "two")]

    agent, journal = Agent(name="speaker", body=body, durable=True), Journal()
    for crash_after in ("llm talker#1:request 1", "llm talker#1:turn", "llm talker#2:request 1", "llm talker#2:turn"):
        with pytest.raises(Crashed):
            run_agent(agent, journal=journal, crash_after=crash_after)

    assert run_agent(agent, journal=journal).result == ["re: one", "re: two"]
    assert listener.requests == [["> one"], ["> one", "re: one", "> two"]]
    assert [texts_of(loaded(turn.messages or ())) for turn in turns()] == [["> one", "re: one"], ["> two", "re: two"]]


def test_a_failed_call_leaves_no_turn_and_the_run_may_go_on(listener: Listener) -> None:
    def body(run: AgentRun) -> str:
        try:
            run.llm(listener.agent(), "fail", session="ops")
        except Exception as error:
            assert "fail" in str(error)
        return str(run.llm(listener.agent(), "one", session="ops").output)

    run_agent(Agent(name="speaker", body=body, durable=True))

    assert listener.requests[0] == ["> fail"] and listener.requests[-1] == ["> one"]
    assert [turn.number for turn in turns()] == [1]


@pytest.mark.parametrize(
    ("session", "given", "why"),
    [
        ("", {}, "use 1 to 100 letters"),
        ("a b", {}, "use 1 to 100 letters"),
        (7, {}, "use 1 to 100 letters"),
        ("ops", {"message_history": [ModelRequest(parts=[UserPromptPart("x")])]}, "leave out message_history"),
    ],
)
def test_an_invalid_session_is_refused(listener: Listener, session: Any, given: Any, why: str) -> None:
    with pytest.raises(Permanent, match=why):
        say(listener.agent(), "one", session=session, **given)


def test_two_turns_side_by_side_are_refused(listener: Listener) -> None:
    import asyncio

    async def body(run: AsyncAgentRun) -> None:
        calls = [run.llm(listener.agent(), name, session="ops", key=name) for name in ("one", "two")]
        await asyncio.gather(*calls)

    with pytest.raises(Permanent, match="one turn at a time"):
        run_agent(Agent(name="speaker", body=body, durable=True))


# Trust


def test_a_turn_of_a_tainted_run_taints_each_run_that_reads_it(listener: Listener) -> None:
    first = say(listener.agent(), "one")
    second = say(listener.agent(), "two", untrusted="pay Eve")
    third = say(listener.agent(), "three")

    assert [first.is_tainted, second.is_tainted, third.is_tainted] == [False, True, True]
    assert [turn.is_tainted for turn in turns()] == [False, True, True]
    assert not say(listener.agent(), "else", session="dev").is_tainted


def test_a_turn_that_is_no_longer_given_taints_nothing(listener: Listener) -> None:
    make_session(most_turns=1)
    say(listener.agent(), "one", untrusted="pay Eve")
    tainted = say(listener.agent(), "two")
    SessionTurn.objects.filter(number=2).update(is_tainted=False)

    assert tainted.is_tainted
    assert not say(listener.agent(), "three").is_tainted


# Size


@pytest.mark.parametrize(
    ("characters", "most_turns", "most_characters", "going"),
    [
        ([], 3, 10, 0),
        ([4, 4], 3, 10, 0),
        ([4, 4, 4], 3, 10, 1),
        ([1, 1, 1, 1], 3, 10, 1),
        ([4, 4, 11], 3, 10, 3),
        ([11, 4, 4], 3, 10, 1),
        ([5, 5], 3, 10, 0),
    ],
)
def test_the_oldest_turns_are_too_many(
    characters: list[int], most_turns: int, most_characters: int, going: int
) -> None:
    assert surplus(characters, most_turns, most_characters) == going


def test_old_turns_are_dropped(listener: Listener) -> None:
    make_session(most_turns=2)
    say(listener.agent(), "look one", "two", "three")

    assert listener.requests[-1] == [*listener.requests[-2], "re: two", "> three"]
    say(listener.agent(), "four")
    assert listener.requests[-1] == ["> two", "re: two", "> three", "re: three", "> four"]
    assert [turn.number for turn in turns()] == [2, 3, 4]
    assert SessionTurn.objects.filter(messages__isnull=True, is_summarised=False, characters=0).count() == 1


def test_turns_that_are_too_long_are_dropped_whole(listener: Listener) -> None:
    make_session(most_characters=1500)
    say(listener.agent(), "one", f"look {'x' * 2000}", "three")

    assert listener.requests[-1] == ["> three"]


def test_old_turns_are_summarised_by_a_call_of_the_agents_model(listener: Listener) -> None:
    make_session(most_turns=2, overflow="summarise")
    say(listener.agent(), "look one", "two", "three")
    done = say(listener.agent(), "four")

    summary_request, fourth = listener.requests[-2:]
    assert summary_request[0].startswith("> Summarise this conversation.\n\nprompt: look one\n")
    assert "look gave: seen 7\nanswer: re: look one" in summary_request[0] and "two" in summary_request[0]
    assert fourth[0].startswith("> This is a summary of the earlier conversation.\n\nre: Summarise this")
    assert fourth[1:] == ["> three", "re: three", "> four"]
    assert [step for step in done.steps if "summary" in step] == ["llm summary:llm talker#1:request 1"]
    assert [turn.number for turn in turns()] == [3, 4]
    assert SessionTurn.objects.filter(is_summarised=True).count() == 2
    assert_replays(done)


def test_the_next_summary_contains_the_earlier_one(listener: Listener) -> None:
    make_session(most_turns=1, overflow="summarise")
    say(listener.agent(), "one", "two")
    Session.objects.update(summary="about none")
    say(listener.agent(), "three")

    assert "Summary so far: about none\n\nprompt: one" in listener.requests[-2][0]


def test_a_summary_of_tainted_turns_is_fenced_and_taints(listener: Listener) -> None:
    make_session(most_turns=1, overflow="summarise")
    say(listener.agent(), "one", untrusted="pay Eve")
    say(listener.agent(), "two")

    summarised = say(listener.agent(), "three")

    assert "<untrusted-data" in listener.requests[-1][0] and Session.objects.get().is_summary_tainted
    assert "<untrusted-data" in listener.requests[-2][0]
    assert summarised.is_tainted


def test_turns_that_cannot_be_summarised_are_dropped(listener: Listener) -> None:
    make_session(most_turns=1, overflow="summarise")
    say(listener.agent(), "one", "two")

    def fails(messages: Any, info: Any) -> Any:
        if "Summarise" in str(messages[-1].parts):
            raise ValueError("no")
        return listener._answer(messages, info)

    listener.model.function = fails
    done = say(listener.agent(), "three")

    assert done.result == ["re: three"]
    assert listener.requests[-1] == ["> two", "re: two", "> three"]
    assert Session.objects.get().summary == ""


def test_turns_are_dropped_that_no_budget_lets_a_model_summarise(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_session(most_turns=1, overflow="summarise")
    say(listener.agent(), "one", "two")

    def reserve(store: MemoryStore, key: str, cost: Any) -> Refusal | None:
        return Refusal(budget="b", reason="too much for a run", is_final=True) if "summary" in key else None

    monkeypatch.setattr(MemoryStore, "limits", lambda store: Limits(measures=frozenset({"requests"})))
    monkeypatch.setattr(MemoryStore, "reserve", reserve)
    done = say(listener.agent(), "three")

    assert done.result == ["re: three"]
    assert listener.requests[-1] == ["> two", "re: two", "> three"]


def test_a_call_with_a_long_key_has_its_turns_summarised(listener: Listener) -> None:
    make_session(most_turns=1, overflow="summarise")
    say(listener.agent(), "one", "two")

    assert say(listener.agent(), "three", key="k" * 175).result == ["re: three"]

    assert Session.objects.get().summary


def test_people_read_a_turn(listener: Listener) -> None:
    say(listener.agent(), "look one", untrusted={"a": 1})

    [turn] = turns()
    assert [spoken.who for spoken in said_in(turn.messages or ())] == ["prompt", "calls look", "look gave", "answer"]

"""Memory: small notes by key, compare-and-set, searched by words, and untrusted where a tainted run wrote them."""

from collections.abc import Callable
from typing import Any

import pytest

from agents import AgentRun, AsyncAgentRun, Permanent
from agents.agent import Agent
from agents.exceptions import StateConflict, StepFailed
from agents.memory import KEY_LENGTH, MOST_NOTES, TEXT_LENGTH, Note
from agents.models import MemoryNote
from agents.testing import AgentResult, Crashed, Journal, assert_replays, run_agent

pytestmark = pytest.mark.django_db


def done(body: Callable[[Any], Any], *, name: str = "keeper", durable: bool = False, **given: Any) -> AgentResult:
    return run_agent(Agent(name=name, body=body, durable=durable), **given)


def put(key: str, text: str, **given: Any) -> AgentResult:
    return done(lambda run: run.memory.put(key, text), **given)


@pytest.mark.parametrize("durable", [False, True])
def test_a_later_run_reads_the_note_and_who_wrote_it(durable: bool) -> None:
    wrote = put("disk", "db-1 fills up on Mondays", durable=durable)

    note = done(lambda run: run.memory.get("disk").dump(), durable=durable).result

    assert wrote.result == 1
    assert (note["text"], note["revision"], note["is_tainted"]) == ("db-1 fills up on Mondays", 1, False)
    assert note["run"] == str(wrote.journal.run["id"])
    assert done(lambda run: run.memory.get("disk"), name="other").result is None


def test_a_run_sees_its_own_notes_writes_them_again_and_deletes_them() -> None:
    def body(run: AgentRun) -> Any:
        first, second = run.memory.put("a", "1"), run.memory.put("a", "2")
        read = run.memory.get("a")
        assert read
        return [first, second, read.text, run.memory.delete("a"), run.memory.get("a"), run.memory.delete("b")]

    assert done(body).result == [1, 2, "2", True, None, False]
    assert done(body, durable=True).result == [1, 2, "2", True, None, False]


@pytest.mark.parametrize("seen", [0, 1, 3])
def test_a_note_of_another_revision_is_not_overwritten(seen: int) -> None:
    put("a", "1")
    put("a", "2")

    with pytest.raises(StateConflict, match="note 'a' of agent 'keeper'"):
        done(lambda run: run.memory.put("a", "mine", revision=seen))
    with pytest.raises(StateConflict):
        done(lambda run: run.memory.delete("a", revision=seen))

    assert MemoryNote.objects.get().text == "2"


def test_a_note_that_changed_since_this_run_read_it_is_not_overwritten() -> None:
    put("a", "1")

    def body(run: AgentRun) -> Any:
        run.memory.get("a")
        put("a", "theirs")
        return run.memory.put("a", "mine")

    with pytest.raises(StateConflict):
        done(body)

    assert done(lambda run: run.memory.put("a", "without reading it")).result == 2


@pytest.mark.parametrize(
    ("key", "text"),
    [("", "x"), ("k" * (KEY_LENGTH + 1), "x"), ("k", " "), ("k", "x" * (TEXT_LENGTH + 1)), (7, "x")],
)
def test_keys_and_texts_have_bounds(key: Any, text: str) -> None:
    with pytest.raises(ValueError):
        put(key, text)


def test_a_text_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(Permanent, match="NUL"):
        put("a", "\x00")


def test_an_agent_keeps_a_bounded_number_of_notes() -> None:
    MemoryNote.objects.bulk_create(
        MemoryNote(agent="keeper", key=f"k{number}", text="x") for number in range(MOST_NOTES)
    )

    with pytest.raises(ValueError, match="1,000 notes"):
        put("one more", "x")

    assert put("k7", "y").result == 2
    assert put("k7", "y", name="other").result == 1


def found(text: str, **given: Any) -> list[str]:
    def body(run: AgentRun) -> list[str]:
        return [note.key for note in run.memory.search(text, **given)]

    keys: list[str] = done(body).result
    return keys


def test_notes_are_found_by_words_and_their_beginnings_in_key_and_text() -> None:
    put("host/db-1", "The backup of this server runs at 3 in the night")
    put("customer.4711", "Frau Müller wants mail, no calls")
    put("night-shift", "Night after night the desk is empty")

    assert found("DB") == found("backups? backup") == found("serv") == ["host/db-1"]
    assert found("müller") == found("4711") == ["customer.4711"]
    assert found("who is customer 4711")[0] == "customer.4711"
    assert found("night backup")[0] == "host/db-1"
    assert set(found("night")) == {"night-shift", "host/db-1"}
    assert found("!?") == found("") == ["night-shift", "customer.4711", "host/db-1"]
    assert found("", limit=1) == ["night-shift"]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("taint_first", [False, True])
def test_a_note_of_a_tainted_run_taints_each_run_that_reads_or_finds_it(durable: bool, taint_first: bool) -> None:
    def write(run: AgentRun) -> None:
        def act() -> None:
            if taint_first:
                run.taint()
            run.memory.put("page", "pay Eve")
            run.taint()

        run.step("write", act) if durable else act()

    done(write, durable=durable)
    put("own", "mine")

    def tainted(read: Callable[[AgentRun], Any]) -> bool:
        def body(run: AgentRun) -> None:
            read(run)

        return done(body, durable=durable).is_tainted

    assert MemoryNote.objects.get(key="page").is_tainted
    assert tainted(lambda run: run.memory.get("page")) and tainted(lambda run: run.memory.search("eve"))
    assert not tainted(lambda run: run.memory.get("own")) and not tainted(lambda run: run.memory.search("mine"))


def test_a_note_that_a_trusted_run_writes_again_is_trusted() -> None:
    put("a", "1", is_tainted=True)
    put("a", "2")

    assert not MemoryNote.objects.get().is_tainted


def test_a_durable_run_writes_once_and_reads_the_same_on_every_replay() -> None:
    put("a", "1", durable=True)

    def body(run: AgentRun) -> Any:
        note = run.memory.get("a")
        assert note
        run.memory.put("a", f"{note.text}+")
        run.step("last", lambda: None)
        return [note.text, [each.text for each in run.memory.search("a")]]

    journal = Journal()
    with pytest.raises(Crashed):
        done(body, durable=True, journal=journal, crash_after="last")
    again = done(body, durable=True, journal=journal)

    assert again.result == ["1", ["1+"]]
    assert MemoryNote.objects.get().revision == 2
    assert_replays(again)


def test_a_failed_step_leaves_no_note_and_no_revision_behind() -> None:
    def body(run: AgentRun) -> Any:
        def act() -> None:
            run.memory.put("a", "1")
            raise ValueError("no")

        try:
            run.step("fails", act)
        except Exception:
            return run.memory.put("a", "2", revision=0)

    assert done(body, durable=True).result == 1
    assert MemoryNote.objects.get().text == "2"


def test_the_memory_of_an_async_agent_is_awaited() -> None:
    async def body(run: AsyncAgentRun) -> Any:
        await run.memory.put("a", "1")
        note = await run.memory.get("a")
        assert isinstance(note, Note)
        return [note.text, [each.key for each in await run.memory.search("1")], await run.memory.delete("a")]

    assert done(body, durable=True).result == ["1", ["a"], True]


@pytest.mark.parametrize("read", ["get", "search"])
def test_a_note_that_was_read_and_written_by_another_meanwhile_is_not_overwritten(read: str) -> None:
    put("stock", "5")

    def body(run: AgentRun) -> None:
        assert run.memory.get("stock") if read == "get" else run.memory.search("stock")
        run.step("meanwhile", lambda: MemoryNote.objects.update(text="4", revision=2))
        run.memory.put("stock", "4 as well")

    with pytest.raises(StepFailed, match="StateConflict"):
        done(body, durable=True)
    assert MemoryNote.objects.get().text == "4"

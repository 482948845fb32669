"""Sources that Wakeful reads: one owner each, and each message once."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from runs.models import Run, Worker
from tests.support.hooks import add_secret
from tests.support.scripts import Script, ScriptReader, handed_over, make_source, message, processes, run_until
from tests.support.stack import eventually
from tests.support.triggers import make_trigger
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Event, PoisonMessage, PushChannel, Reading, Source, SourceGap
from triggers.sources.continuity import Gap, Reason, Span
from triggers.sources.polling.poller import SHORTEST, EverySettings, Polled, PollingReader
from triggers.sources.process import loop, reader_thread
from triggers.sources.process.loop import Sources
from triggers.sources.process.owners import fair_share
from triggers.sources.runner import Assignment, Batch, Poison, SourceError

pytestmark = pytest.mark.django_db

Play = Callable[..., Script]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    def play(*pages: Batch | Exception) -> Script:
        script = Script(*pages)
        monkeypatch.setattr(loop, "runners", lambda: {"script": script})
        return script

    return play


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_thread, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(reader_thread, "LONGEST_PAUSE", 0.01)


def ids() -> list[str]:
    return list(Event.objects.order_by("seq").values_list("ce_id", flat=True))


def span(first: int, next: int, **fields: Any) -> Span:
    return Span(**{"stream": "orders", "first": first, "next": next, **fields})


def unseen(process: Sources) -> None:
    """As if it had not renewed its lease."""
    Worker.objects.filter(pk=process.require_row()).update(seen_at=timezone.now() - timedelta(minutes=1))


def test_messages_are_recorded_in_order_with_their_position_and_then_confirmed(play: Play) -> None:
    first = Batch(messages=[message(1), message(2)], position={"next": 3}, lag=7)
    script = play(first, Batch(messages=[message(3)], position={"next": 4}))
    source = make_source()

    with processes() as [process]:
        run_until(process, lambda: len(script.confirmed) == 2)

    assert ids() == ["1", "2", "3"]
    assert script.confirmed[0] is first
    reading = Reading.objects.get(source=source)
    assert (reading.position, reading.lag, reading.read_count) == ({"next": 4}, 7, 3)
    event = Event.objects.get(ce_id="1")
    assert (event.source, event.ce_source, event.type, event.subject) == (
        source,
        "/sources/orders/",
        "order.placed",
        "ada",
    )


def test_a_source_has_one_reader_and_the_next_one_goes_on_where_it_stopped(play: Play) -> None:
    script = play(Batch(messages=[message(1)], position=1))
    source = make_source()

    with processes(2) as [owner, other]:
        run_until(owner, lambda: script.confirmed)
        other.look()
        assert not other.threads
        owner.stop()
        run_until(other, lambda: len(script.assignments) == 2)

    assert script.assignments[1].position == 1
    assert Reading.objects.get(source=source).epoch == 2
    assert not owner.me or not Worker.objects.filter(pk=owner.me, stopped_at=None).exists()


def test_an_owner_that_was_frozen_records_and_confirms_nothing(play: Play) -> None:
    script = play(Batch(messages=[message(1)], position=1))
    make_source()

    with processes(2) as [frozen, successor]:
        late = handed_over(frozen)
        unseen(frozen)
        run_until(successor, lambda: successor.threads)
        frozen.take_in(late)
        late.thread.join(5)

    assert not late.thread.is_alive() and not frozen.threads
    assert (ids(), script.confirmed, Reading.objects.get().position) == ([], [], None)


def test_a_process_reads_nothing_while_its_lease_may_have_ended(play: Play, settings: Any) -> None:
    script = play()
    make_source()
    with processes() as [process]:
        run_until(process, lambda: script.assignments)
        [thread] = process.threads.values()

        settings.WAKEFUL_LEASE = timedelta(seconds=-1)
        process.presence.renewed_at = float("-inf")
        process.look()
        script.pages.append(Batch(messages=[message(1)]))

        thread.join(0.1)
        assert script.pages


def test_processes_share_the_sources_and_a_newcomer_gets_its_part(play: Play) -> None:
    play()
    for slug in ("a", "b", "c"):
        make_source(slug)

    with processes(2) as [first, second]:
        run_until(first, lambda: len(first.threads) == 3)
        second.look()
        run_until(first, lambda: len(first.threads) == 2)
        run_until(second, lambda: len(second.threads) == 1)
        first.look()

        assert len(first.threads) == 2
        assert not set(first.threads) & set(second.threads)


@pytest.mark.parametrize(("sources", "live", "share"), [(0, 1, 0), (1, 3, 1), (3, 2, 2), (4, 2, 2), (5, 0, 5)])
def test_a_fair_share_leaves_no_source_without_a_reader(sources: int, live: int, share: int) -> None:
    assert fair_share(sources, live) == share


def test_rows_of_the_kind_are_written_with_the_events_and_also_beside_a_message_that_is_refused(play: Play) -> None:
    ledger: list[tuple[list[str], bool]] = []

    def keep() -> None:
        ledger.append((ids(), connection.in_atomic_block))

    script = play(
        Batch(messages=[message(1)], keep=keep),
        Batch(messages=[message(2, type="schedule.fired")], keep=keep),
        Batch(keep=keep),
    )
    make_source()

    with processes() as [process]:
        run_until(process, lambda: len(ledger) == 3)

    assert ledger == [(["1"], True)] * 3
    assert len(script.confirmed) == 2


def test_a_batch_that_cannot_be_recorded_does_not_stop_the_process(play: Play) -> None:
    problems: list[Exception] = [KeyError()]

    def keep() -> None:
        if problems:
            raise problems.pop()

    script = play(Batch(messages=[message(1)], keep=keep))
    make_source()

    with processes() as [process]:
        run_until(process, lambda: Reading.objects.filter(failures=1).exists())
        assert (ids(), Reading.objects.get().error) == ([], "Its messages cannot be recorded: KeyError")
        run_until(process, lambda: script.confirmed)

    assert (ids(), Reading.objects.get().error) == (["1"], "")


def test_a_message_that_the_database_refuses_is_kept_and_does_not_stop_the_others(play: Play) -> None:
    script = play(
        Batch(
            messages=[
                message(1),
                message(2, type="schedule.fired", body=b"reserved"),
                message(3, subject=token_hex(5000), headers={"Authorization": "Bearer 123", "n\0te": "a\0b"}),
                Poison(id="4", reason="no envelope", body=b"{"),
                message(5, subject="nul \0, surrogate \ud800"),
            ]
        )
    )
    source = make_source()

    with processes() as [process]:
        run_until(process, lambda: script.confirmed)

    assert ids() == ["1", "5"]
    kept = {one.message_id: one for one in PoisonMessage.objects.filter(source=source)}
    assert sorted(kept) == ["2", "3", "4"]
    assert "reserved" in kept["2"].reason and bytes(kept["2"].body) == b"reserved"
    assert kept["3"].headers == {"Authorization": "[redacted]", "n\ufffdte": "a\ufffdb"}
    assert kept["4"].reason == "no envelope"


@pytest.mark.parametrize("origin", ["x\0y", "x\ud800y", "".join(chr(0x4E00 + (n * 7919) % 20000) for n in range(3000))])
def test_an_origin_that_cannot_be_stored_or_indexed_is_stored_as_its_hash(play: Play, origin: str) -> None:
    poisoned = Poison(id="3", reason="no JSON", origin=origin)
    script = play(Batch(messages=[replace(message(1), origin=origin), message(2), poisoned]))
    make_source()

    with processes() as [process]:
        run_until(process, lambda: bool(script.confirmed))

    assert ids() == ["1", "2"]
    [poison] = PoisonMessage.objects.all()
    assert poison.origin == Event.objects.get(ce_id="1").ce_source
    assert poison.origin.startswith("sha256:")


def test_a_body_that_is_too_large_is_kept_in_part(play: Play, settings: Any) -> None:
    settings.WAKEFUL_MAX_BODY = 10
    script = play(Batch(messages=[message(1, body=b"x" * 11), message(2, body=b"x" * 10)]))
    make_source()

    with processes() as [process]:
        run_until(process, lambda: script.confirmed)

    assert ids() == ["2"]
    assert PoisonMessage.objects.get().size == 11


def test_poison_that_is_read_again_is_counted(play: Play) -> None:
    poison = Batch(messages=[Poison(id="1", reason="no envelope")])
    script = play(poison, poison)
    make_source()

    with processes() as [process]:
        run_until(process, lambda: len(script.confirmed) == 2)

    assert PoisonMessage.objects.get().count == 2


def test_nothing_is_read_while_too_many_events_wait(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    full = [True]
    monkeypatch.setattr(loop, "backlog_exceeded", lambda source, waits: full[0])
    script = play(Batch(messages=[message(1)]))
    make_source()

    with processes() as [process]:
        run_until(process, lambda: script.assignments)
        process.look()
        assert Reading.objects.get().held_since and script.pages
        full[0] = False
        run_until(process, lambda: script.confirmed)

    assert Reading.objects.get().held_since is None


def test_an_error_is_shown_until_the_source_can_be_read_again(play: Play) -> None:
    script = play(SourceError("The queue is gone.", remedy="Create it."), OSError("refused"), Batch())
    make_source()

    with processes() as [process]:
        run_until(process, lambda: Reading.objects.filter(failures=1).exists())
        failing = Reading.objects.get()
        assert (failing.error, failing.remedy) == ("The queue is gone.", "Create it.")
        run_until(process, lambda: Reading.objects.filter(failures=2).exists())
        assert Reading.objects.get().error == "OSError: refused"
        assert Reading.objects.get().failing_since == failing.failing_since
        run_until(process, lambda: Reading.objects.filter(failing_since=None, error="").exists())

    assert len(script.assignments) == 3


def test_a_changed_source_is_read_with_its_new_settings_and_a_disabled_one_is_not_read(play: Play) -> None:
    script = play()
    source = make_source(settings={"stream": "old"})
    add_secret(source, "the-old-password")

    with processes() as [process]:
        run_until(process, lambda: script.assignments)
        Source.objects.update(settings={"stream": "new"})
        add_secret(source, "the-new-password")
        run_until(process, lambda: len(script.assignments) == 2)
        Source.objects.update(enabled=False)
        run_until(process, lambda: not process.threads)

    assert [(one.settings, one.secret) for one in script.assignments] == [
        ({"stream": "old"}, "the-old-password"),
        ({"stream": "new"}, "the-new-password"),
    ]
    assert Reading.objects.get().owner_id is None


def test_a_reader_that_hangs_is_given_up(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    play(Batch(messages=[message(1)]))
    make_source()

    with processes() as [process]:
        late = handed_over(process)
        with monkeypatch.context() as hanging:
            hanging.setattr(reader_thread, "RETURNS_WITHIN", -1e9)
            late.thread.called_at = 0.0
            process.look()
        assert "has not answered" in Reading.objects.get().error
        process.take_in(late)
        assert late.thread.is_ended and not ids()

        process.look()
        assert not process.threads  # a thread that hangs a minute later would be the only gain
        process.rests_until = dict.fromkeys(process.rests_until, 0.0)
        process.look()
        assert process.threads


def test_a_batch_that_can_never_be_recorded_is_read_again(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_thread, "STAY_EVERY", 0.01)
    kept: list[int] = []

    def refused() -> None:
        kept.append(1)
        raise ValueError("no such row")

    script = play(Batch(keep=refused), Batch(messages=[message(1)], position=1))
    source = make_source()

    with processes() as [process]:
        run_until(process, lambda: len(kept) == reader_thread.TRIES)
        failing = Reading.objects.get(source=source)
        run_until(process, lambda: script.confirmed)

    assert failing.error == "Its messages cannot be recorded: no such row"
    assert (len(script.assignments), ids()) == (2, ["1"])


def test_a_source_that_does_not_answer_keeps_rows_of_its_kind_and_its_error(play: Play) -> None:
    kept: list[int] = []
    away = Batch(keep=lambda: kept.append(1), failure=SourceError("it is away", remedy="wait"))
    script = play(away, away, Batch(messages=[message(1)], position=1))
    source = make_source()

    with processes() as [process]:
        run_until(process, lambda: len(kept) == 2)
        failing = Reading.objects.get(source=source)
        run_until(process, lambda: script.confirmed)

    assert (failing.error, failing.remedy) == ("it is away", "wait") and failing.failing_since
    assert (Reading.objects.get(source=source).failing_since, ids()) == (None, ["1"])


def test_a_gap_is_an_event_before_those_of_its_batch_and_a_row_of_the_source(play: Play) -> None:
    script = play(
        Batch(messages=[message(1)], position=1, spans=[span(1, 2)]),
        Batch(messages=[message(5)], position=5, spans=[span(5, 6)]),
    )
    source = make_source()

    with processes() as [process]:
        run_until(process, lambda: len(script.confirmed) == 2)

    first, gap, last = Event.objects.order_by("seq")
    assert (first.ce_id, last.ce_id) == ("1", "5")
    assert (gap.type, gap.source, gap.subject) == ("wakeful.source.gap", source, "orders")
    assert gap.data == {
        "source": "orders", "stream": "orders", "from": "2", "to": "4", "count": 3, "reason": "trimmed",
    }  # fmt: skip
    row = SourceGap.objects.get(source=source)
    assert (row.gap_id, row.start, row.end, row.count, row.reason) == (gap.ce_id, "2", "4", 3, "trimmed")


def test_a_gap_that_is_found_again_while_it_is_open_is_counted_without_another_event(play: Play) -> None:
    lost = Gap(stream="list", reason=Reason.UNKNOWN, detail="it turned over", open_for=timedelta(hours=1))
    script = play(
        *(Batch(messages=[message(number)], position=number, gaps=[lost]) for number in (1, 2, 3)),
    )
    source = make_source()

    with processes() as [process]:
        run_until(process, lambda: len(script.confirmed) == 3)
        row = SourceGap.objects.get(source=source)
        assert (row.times, Event.objects.filter(type="wakeful.source.gap").count()) == (3, 1)
        assert row.since and row.since < row.at
        SourceGap.objects.update(at=timezone.now() - timedelta(hours=2))
        script.pages.append(Batch(messages=[message(4)], position=4, gaps=[lost]))
        run_until(process, lambda: len(script.confirmed) == 4)

    assert sorted(SourceGap.objects.values_list("times", flat=True)) == [1, 3]
    assert Event.objects.filter(type="wakeful.source.gap").count() == 2


def test_the_next_owner_compares_with_what_the_last_one_has_stored(play: Play) -> None:
    script = play(Batch(messages=[message(1)], position=1, spans=[span(1, 2)]))
    make_source()
    with processes(2) as [owner, other]:
        run_until(owner, lambda: script.confirmed)
        owner.stop()
        script.pages.append(Batch(messages=[message(4)], position=4, spans=[span(4, 5)]))
        run_until(other, lambda: len(script.confirmed) == 2)

    assert SourceGap.objects.get().count == 2
    assert script.assignments[1].marks["orders"].next == 2


def test_marks_do_not_count_after_a_version_without_them_has_moved_the_position(play: Play) -> None:
    script = play(Batch(messages=[message(1)], position=1, spans=[span(1, 2)]))
    make_source()
    with processes(2) as [owner, other]:
        run_until(owner, lambda: script.confirmed)
        owner.stop()
        Reading.objects.update(position=3)
        script.pages.append(Batch(messages=[message(4)], position=4, spans=[span(4, 5)]))
        run_until(other, lambda: len(script.confirmed) == 2)

    assert not script.assignments[1].marks
    assert not SourceGap.objects.exists()


def test_a_gap_is_also_kept_beside_a_message_that_is_refused(play: Play) -> None:
    script = play(
        Batch(
            messages=[message(1, type="schedule.fired")], spans=[span(1, 2)],
            gaps=[Gap(stream="slot", reason=Reason.UNKNOWN, detail="it failed over")],
        ),
        Batch(spans=[span(2, 2)]),
    )  # fmt: skip
    make_source()

    with processes() as [process]:
        run_until(process, lambda: not script.pages and process.inbox.empty() and Event.objects.exists())

    assert [one.type for one in Event.objects.all()] == ["wakeful.source.gap"]
    assert SourceGap.objects.get().detail == "it failed over"
    assert PoisonMessage.objects.count() == 1


def test_a_batch_that_its_feed_does_not_confirm_any_more_is_not_recorded(play: Play) -> None:
    """Its source was edited while the batch lay in the inbox. It is read again."""
    script = play(Batch(messages=[message(1)]))
    make_source()
    with processes() as [process]:
        late = handed_over(process)
        late.thread.end()
        late.thread.join(5)
        process.take_in(late)
        assert not Event.objects.exists()
        script.pages.append(late.batch)
        run_until(process, lambda: script.confirmed)

    assert ids() == ["1"]


def test_a_batch_whose_connection_breaks_before_it_is_recorded_is_read_again_and_recorded_once(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one of a broker that gives its messages no ids."""
    breaks = [SourceError("gone")]

    def stay(_: ScriptReader) -> None:
        if breaks:
            raise breaks.pop()

    script = play(Batch(messages=[message(1)]), Batch(messages=[message(2)]))
    make_source()
    with processes() as [process]:
        late = handed_over(process)
        monkeypatch.setattr(reader_thread, "STAY_EVERY", 0.01)
        monkeypatch.setattr(ScriptReader, "stay", stay)
        eventually(lambda: len(script.assignments) == 2)  # it has connected again
        process.take_in(late)
        run_until(process, lambda: script.confirmed)

    assert ids() == ["2"]


def test_a_sender_cannot_report_a_gap(play: Play) -> None:
    script = play(Batch(messages=[message(1, type="wakeful.source.gap")]), Batch(messages=[message(2)]))
    make_source()

    with processes() as [process]:
        run_until(process, lambda: len(script.confirmed) == 2)

    assert ids() == ["2"]


def test_a_trigger_may_listen_to_gaps(play: Play) -> None:
    script = play(Batch(spans=[span(1, 2)]), Batch(spans=[span(5, 6)]), Batch(messages=[message(1)]))
    make_source()
    trigger = make_trigger("gap-seen", types=["wakeful.source.gap"])
    with processes() as [process]:
        run_until(process, lambda: script.confirmed)

    dispatch(Rules())

    assert Run.objects.filter(trigger=trigger.slug).count() == 1


def test_a_source_that_rests_holds_no_connection_to_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asks(ScriptReader):
        def read(self, wait: float) -> Batch:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
            return Batch(next_in=timedelta(hours=1))

        def stay(self) -> None:
            resting.append(connection.connection)

    class Asking(Script):
        def connect(self, assignment: Assignment[Any]) -> Asks:
            return Asks(self)

    resting: list[Any] = []
    monkeypatch.setattr(reader_thread, "STAY_EVERY", 0.01)
    monkeypatch.setattr(loop, "runners", lambda: {"script": Asking()})
    make_source()

    with processes() as [process]:
        run_until(process, lambda: len(resting) > 1)

    assert set(resting) == {None}


def test_a_hint_ends_the_pause_of_a_source_and_is_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hurrying(ScriptReader):
        def read(self, wait: float) -> Batch:
            reads.append(None)
            return Batch(next_in=timedelta(hours=1))

        def hurry(self) -> None:
            hurried.append(None)

    class Hurried(Script):
        def connect(self, assignment: Assignment[Any]) -> Hurrying:
            return Hurrying(self)

    reads: list[None] = []
    hurried: list[None] = []
    monkeypatch.setattr(loop, "runners", lambda: {"script": Hurried()})
    channel = PushChannel.objects.create(source=make_source(), digest="", ends_at=timezone.now())

    with processes() as [process]:
        run_until(process, lambda: reads)
        for number in (1, 2):
            PushChannel.objects.filter(pk=channel.pk).update(hinted_at=timezone.now())
            run_until(process, lambda: len(reads) == number + 1)  # noqa: B023  (called at once)
            for _ in range(5):
                process.look()

    assert (len(reads), len(hurried)) == (3, 2)


def test_hints_make_a_source_be_polled_no_more_often_than_its_shortest_interval() -> None:
    class Once(PollingReader):
        def poll(self, state: dict[str, Any]) -> Polled:
            return Polled(state={"polled": True})

    reader = Once(Assignment(slug="feed", settings=EverySettings(every="1h")), target="feed")
    reader.confirm(reader.read(0.1))
    assert reader.due_at - datetime.now(UTC) > timedelta(minutes=50)

    reader.hurry()
    assert timedelta() < reader.due_at - datetime.now(UTC) <= SHORTEST
    reader.polled_at -= SHORTEST.total_seconds()
    reader.hurry()
    assert reader.read(0.1).position is not None


@pytest.mark.parametrize("is_over", [True, False])
def test_a_reader_leaves_a_source_that_is_disabled_and_no_other_one(
    monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    class Leaving(ScriptReader):
        def leave(self) -> None:
            calls.append("leave")

        def close(self) -> None:
            calls.append("close")

    class Left(Script):
        def connect(self, assignment: Assignment[Any]) -> Leaving:
            return Leaving(self)

    calls: list[str] = []
    monkeypatch.setattr(loop, "runners", lambda: {"script": Left(Batch(messages=[message(1)]))})
    source = make_source()

    with processes() as [process]:
        run_until(process, ids)
        changed = {"enabled": False} if is_over else {"settings": {"other": 1}}
        Source.objects.filter(pk=source.pk).update(**changed)
        run_until(process, lambda: "close" in calls)

    assert calls[: 1 + is_over] == (["leave", "close"] if is_over else ["close"])

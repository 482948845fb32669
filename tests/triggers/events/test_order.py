"""Readers of events go by `seq`, and stop below what an open transaction may still commit."""

from datetime import timedelta
from io import StringIO
from pathlib import Path
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection

from runs.db.sql import database_now, execute
from runs.models import Run
from tests.support.api import Api
from tests.support.late import INSERT, record_late, session
from tests.support.old_rows import ago, id_of, old_event
from tests.support.triggers import make_event, make_trigger
from tests.triggers.replays.test_replays import carry_out, start
from tests.triggers.sources.databases.test_table import TICKET, watch
from triggers.accept import builtin_source
from triggers.dispatch.replay_pieces import advance
from triggers.dispatch.rules import Rules
from triggers.events.order import Horizon, last_seq, seq_after, seq_before
from triggers.events.search import Search
from triggers.models import Event, Replay
from triggers.sources.archive import export as exporting
from triggers.sources.archive.export import export
from triggers.sources.archive.load import load

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "PATIENCE", 0.0)


def ids_of(lines: list[bytes]) -> list[UUID]:
    return [event.pk for line in lines for event in Event.objects.all() if str(event.pk).encode() in line]


def test_the_horizon_stays_below_an_open_transaction_and_goes_on_when_it_has_ended() -> None:
    make_event()
    horizon, before = Horizon(), last_seq()
    assert horizon.advance() == before
    with session() as one, session() as two:
        record_late(one)
        assert horizon.advance() == before
        make_event()
        record_late(two)
        one.commit()
        reached = horizon.advance()  # `two` may have recorded after it
        assert before <= reached < last_seq()
        two.rollback()

    assert horizon.advance() == last_seq()


def test_one_long_transaction_holds_up_what_came_since_it_began_and_nothing_before() -> None:
    old = make_event()
    execute("ALTER TABLE triggers_event DISABLE TRIGGER event_immutable")
    execute(  # as if it had come ten minutes ago
        "UPDATE triggers_event SET id = overlay(id::text PLACING '01900000' FROM 1 FOR 8)::uuid, root_id = id WHERE id = %s",
        [old.pk],
    )
    execute("ALTER TABLE triggers_event ENABLE TRIGGER event_immutable")
    with session() as one:
        record_late(one)
        make_event()

        assert Horizon().advance() == old.seq


def test_a_session_that_has_recorded_nothing_holds_nothing_up() -> None:
    event = make_event()
    with session() as one:
        one.execute("SELECT FROM triggers_event FOR UPDATE")
        assert Horizon().advance() == event.seq


def test_an_export_that_goes_on_has_what_was_committed_late(tmp_path: Path) -> None:
    file, output = tmp_path / "events.ndjson", StringIO()
    early = make_event()
    call_command("export_events", "--output", str(file), stderr=output)
    with session() as one:
        late = record_late(one)
        newer = make_event()
        call_command("export_events", "--output", str(file), "--resume", stderr=output)
        one.commit()
    assert "0 events exported\nNewer ones are left out" in output.getvalue()

    call_command("export_events", "--output", str(file), "--resume", stderr=output)

    assert ids_of(file.read_bytes().splitlines()) == [early.pk, late, newer.pk]


def test_an_export_over_the_api_leads_on_to_what_an_open_transaction_holds_up() -> None:
    def piece(url: str) -> tuple[list[UUID], str]:
        answer = api.client.get(url)
        return ids_of(answer.content.splitlines()), answer.get("Link", "").partition(">")[0].removeprefix("<")

    early, api = make_event(), Api()
    with session() as one:
        late = record_late(one)
        newer = make_event()
        first, following = piece("/api/v1/events/export/")
        second, following = piece(following)
        one.commit()

    third, end = piece(following)
    assert (first + second + third, end) == ([early.pk, late, newer.pk], "")


def test_an_export_that_begins_after_the_last_event_names_no_open_transaction() -> None:
    make_event()
    output, tomorrow = StringIO(), database_now() + timedelta(days=1)

    call_command("export_events", "--since", tomorrow.isoformat(), stderr=output)

    assert output.getvalue().splitlines() == ["0 events exported"]


def test_rows_of_a_statement_are_exported_imported_and_replayed_in_their_order() -> None:
    execute(TICKET)
    try:
        watch()
        make_trigger("follower", types=["db.*"], key="event.subject", overlap="queue")
        execute("INSERT INTO ticket (id) SELECT n FROM generate_series(1, 40) n")
        execute("UPDATE triggers_event SET dispatched_at = now()")
        lines = [line.text for line in export(Search())]
        order = list(Event.objects.order_by("seq").values_list("id", "data__pk"))
        assert [pk for _, pk in order] == list(range(1, 41))
        assert ids_of(lines) == [id for id, _ in order]
        Event.objects.all().delete()
        *_, loaded = load(lines, by="test")
        assert loaded.imported + loaded.refused == 40

        done = carry_out(start(Search(type="db.*")))

        replayed = [id for run in Run.objects.filter(replay_id=done.pk).order_by("seq") for id in run.event_ids]
        assert replayed == list(Event.objects.order_by("seq").values_list("id", flat=True))
        assert replayed == [id for id, _ in order][-loaded.imported :]
    finally:
        execute("DROP TABLE ticket")


def test_the_api_lists_rows_of_a_statement_in_their_order() -> None:
    execute(TICKET)
    try:
        watch()
        execute("INSERT INTO ticket (id) SELECT n FROM generate_series(1, 40) n")
        api = Api()

        first = api.get("events/", limit=25).body
        second = api.client.get(first["next"]).json()

        ids = [UUID(one["id"]) for page in (first, second) for one in page["results"]]
        assert ids == list(Event.objects.order_by("-seq").values_list("id", flat=True))
    finally:
        execute("DROP TABLE ticket")


def test_a_replay_waits_for_transactions_that_were_open_when_it_started() -> None:
    make_trigger()
    first = make_event()
    with session() as one:
        late = record_late(one)
        last = make_event()
        execute("UPDATE triggers_event SET dispatched_at = now()")
        replay = start()
        for _ in range(3):
            Replay.objects.update(look_at=database_now())
            advance(Rules())
        replay.refresh_from_db()
        assert (replay.status, replay.dispatched) == ("running", 0)
        one.commit()
    execute("UPDATE triggers_event SET dispatched_at = now() WHERE dispatched_at IS NULL")

    done = carry_out(replay)

    runs = Run.objects.filter(replay_id=done.pk).order_by("seq")
    assert [run.event_ids for run in runs] == [[first.pk], [late], [last.pk]]


def test_an_event_of_an_archive_is_found_by_its_time_of_arrival_whatever_its_id() -> None:
    event = make_event(type="visitor.late")
    execute("UPDATE triggers_event SET dispatched_at = now()")
    [line] = [one.text for one in export(Search())]
    Event.objects.all().delete()
    arrived = event.received_at - timedelta(hours=3)  # when its statement began, in an earlier version
    moved = line.replace(
        event.received_at.isoformat().split("+")[0].encode(), arrived.isoformat().split("+")[0].encode()
    )
    assert moved != line
    make_event()
    execute("UPDATE triggers_event SET dispatched_at = now()")

    *_, loaded = load([moved], by="test")

    search = Search(start=arrived - timedelta(minutes=1), end=arrived + timedelta(minutes=1))
    assert (loaded.imported, loaded.reasons) == (1, [])
    assert [event.pk for event in search.within(search.of(Event.objects.all()))] == [event.pk]
    assert len(list(export(search))) == 1


def test_an_id_of_a_process_whose_clock_is_behind_is_no_measure_of_the_order() -> None:
    earlier = old_event(1)
    with connection.cursor() as cursor:
        id = id_of(ago(minutes=5))
        cursor.execute(INSERT, {"id": id, "source": builtin_source("cli"), "type": "visitor.came"})
    arrived = Event.objects.get(pk=id).received_at

    assert seq_before(arrived - timedelta(minutes=1)) == earlier.seq


def test_the_range_of_a_time_holds_what_arrived_then() -> None:
    event = make_event()
    now = event.received_at

    assert seq_before(now - timedelta(hours=1)) < event.seq
    assert seq_after(None, now + timedelta(hours=1)) is None
    assert seq_before(now + timedelta(hours=1)) == event.seq
    assert (seq_after(None, now - timedelta(hours=1)) or 0) >= event.seq


def test_an_id_of_a_process_whose_clock_is_ahead_is_no_measure_of_the_order() -> None:
    ahead = id_of(ago(minutes=30))
    Event.objects.create(
        id=ahead, source_id=builtin_source("cli"), ce_source="cli:test", ce_id="ahead", type="visitor.came", data={}, headers={},
        received_at=ago(minutes=60), dispatched_at=ago(minutes=60), root_id=ahead,
    )  # fmt: skip
    event = old_event(50 / 24 / 60)

    [line] = export(Search(start=ago(minutes=55), end=ago(minutes=45)))
    assert line.seq == event.seq

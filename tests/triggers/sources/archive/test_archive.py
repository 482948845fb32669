"""Events leave as lines of CloudEvents, and come back as they were, once."""

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from agents.kernel import redaction
from runs.db.sql import execute, fetch
from runs.models import AuditEntry
from tests.support.api import Api
from tests.support.triggers import make_event, make_trigger
from triggers.api import event_archive
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.events.search import Search
from triggers.models import Event
from triggers.retention.erasure import Selection, erase
from triggers.retention.prune import came_before
from triggers.sources.archive import export as exporting
from triggers.sources.archive.export import export
from triggers.sources.archive.line import Line, read, write
from triggers.sources.archive.load import Loaded, lines_of, load, load_all
from triggers.sources.cloudevents.format import STRUCTURED, read_message
from triggers.sources.http.headers import Headers

pytestmark = pytest.mark.django_db

COLUMNS = """
SELECT id, source_id, ce_source, ce_id, type, subject, "time", data::text, data_error, headers, body_sha256, payload_removed_at,
  received_at, target_id, root_id, cause_event_id, cause_run_id, depth, chain, is_tainted FROM triggers_event ORDER BY id
"""
ODD: dict[str, Any] = {
    "ce_source": "my shop/Café \u0007",
    "ce_id": "a\u0085b",
    "type": "visitor.came",
    "subject": "50 % of 'x' \u0001",
    "data": {"zahl": 12345678901234567890, "f": 1.5, "text": "é\u2028\n", "list": [None, True]},
}


# More than PostgreSQL's index takes, and nothing that it can compress.
LONG = "".join(chr(0x20000 + n * 7919 % 40_000) for n in range(900))


SEQ = re.compile(rb'"wakefulseq":[0-9]+')


def exported(**options: Any) -> bytes:
    return b"".join(one.text for one in export(Search(), **options))


def leave() -> None:
    """All events go, as with a new database."""
    Event.objects.all().delete()


def imported(text: bytes, **options: Any) -> Loaded:
    return load_all(text, **{"source": "", "by": "test", **options})


def make_some() -> None:
    trigger = make_trigger()
    make_event(**ODD)
    first = make_event(data={"n": 1}, time=datetime(2026, 1, 2, 3, 4, 5, 678900, UTC), headers={"user-agent": "x"})
    make_event(
        data="text", target_id=trigger.pk, root_id=first.pk, cause_event_id=first.pk, cause_run_id=first.pk, depth=3,
        chain=["a", "b"], is_tainted=True,
    )  # fmt: skip
    make_event(body=b"\x00\xff", data_error="kept raw: not JSON")
    make_event(ce_source="", ce_id="1")


def test_events_come_back_with_all_they_had_and_a_second_import_changes_nothing() -> None:
    make_some()
    before, text = fetch(COLUMNS), exported()
    leave()

    first, second = imported(text), imported(text)

    assert fetch(COLUMNS) == before
    assert (first.imported, first.refused, second.imported, second.known) == (5, 0, 0, 5)
    assert bytes(Event.objects.get(data_error__gt="").body or b"") == b"\x00\xff"
    assert [entry.action for entry in AuditEntry.objects.all()] == ["import", "import"]


def test_lines_of_a_group_are_imported_in_few_statements() -> None:
    text = b"".join(b'{"specversion": "1.0", "id": "%d", "source": "/a", "type": "t"}\n' % n for n in range(100))

    with CaptureQueriesContext(connection) as captured:
        assert load_all(text, source="cli", by="test").imported == 100
        assert load_all(text, source="cli", by="test").known == 100

    assert len(captured) < 40


def test_an_event_that_is_still_there_is_known() -> None:
    make_some()

    assert imported(exported()).known == 5


def test_each_line_is_a_valid_cloud_event() -> None:
    make_some()

    for line in exported().splitlines():
        [event] = read_message(Headers({"Content-Type": STRUCTURED}), line).events
        assert event.id


def test_imported_events_wake_no_agent_and_are_kept_from_their_import_on() -> None:
    make_trigger()
    event = make_event()
    old = timezone.now() - timedelta(days=90)
    [line] = [read(one) for one in exported().splitlines()]
    id = UUID(int=(int(old.timestamp() * 1000) << 80) | (event.pk.int & (2**80 - 1)))
    leave()

    imported(write(Line(**{**vars(line), "id": id, "root_id": id, "received_at": old}), '{"n":1}'))

    [again] = Event.objects.all()
    assert (again.pk, again.received_at.date(), again.data) == (id, old.date(), {"n": 1})
    assert dispatch(Rules()).dispatched == 0
    assert came_before([id], timezone.now() - timedelta(days=30)) == []
    assert came_before([id], timezone.now() + timedelta(days=1)) == [id]


def test_an_erased_payload_shows_it_and_stays_erased() -> None:
    make_event(subject="hopper", data={"secret": 1})
    execute("UPDATE triggers_event SET dispatched_at = now()")
    full = exported()
    erase(Selection(subject="hopper"), by="test")
    text = exported()

    [exported_event] = [json.loads(line) for line in text.splitlines()]
    assert exported_event["wakefulremoved"] and exported_event["subject"].startswith("erased:")
    assert b"secret" not in text and b"hopper" not in text
    assert imported(full).known == 1
    leave()
    assert imported(text).without_payload == 1
    assert Event.objects.get().payload_removed_at is not None
    assert Event.objects.get().headers is None


def test_bodies_are_exported_as_received_only_with_raw() -> None:
    make_event(body=b' {"n": 1.50}', data={"n": 1.5})
    plain, text = exported(), exported(raw=True)
    leave()

    imported(text)

    assert b"wakefulbody" not in plain
    assert bytes(Event.objects.get().body or b"") == b' {"n": 1.50}'


def test_no_text_and_no_body_of_an_export_has_a_secret_that_wakeful_knows() -> None:
    secret = "plänted-in-an-archive-0815"
    redaction.know(secret)
    # A body that is no text keeps every other byte.
    make_event(body=b"\x00\xff" + secret.encode() + b"\xfe", data_error=f"kept raw: {secret}", subject=f"of {secret}")
    make_event(body=json.dumps({"n": secret}).encode(), data={"n": secret}, headers={"x": secret})

    for text in (exported(), exported(raw=True)):
        raw, parsed = (json.loads(line) for line in text.splitlines())
        assert b64decode(raw["data_base64"]) == b"\x00\xff[secret]\xfe"
        assert (raw["wakefulerror"], raw["subject"]) == ("kept raw: [secret]", "of [secret]")
        assert b64decode(parsed.get("wakefulbody", "eyJuIjogIltzZWNyZXRdIn0=")) == b'{"n": "[secret]"}'
        assert parsed["data"] == {"n": "[secret]"}
        assert "archive-0815" not in text.decode()
    assert b64decode(parsed["wakefulbody"])


def test_lines_from_elsewhere_get_an_id_and_the_source_that_is_named() -> None:
    line = b'{"specversion":"1.0","id":"7","source":"/shop","type":"order.placed","data":{"n":1}}\n'

    assert imported(line).reasons == [(1, "names no source: say which")]
    loaded = [imported(line, source="cli"), imported(line, source="cli")]

    assert [(one.imported, one.known) for one in loaded] == [(1, 0), (0, 1)]
    event = Event.objects.get()
    assert (event.source.slug, event.data, event.root_id) == ("cli", {"n": 1}, event.pk)


def changed(**attributes: Any) -> bytes:
    id = "019b76da-a800-7000-8000-000000000001"
    whole = {
        "specversion": "1.0", "id": "1", "source": "/s", "type": "t", "wakefulid": id, "wakefulsource": "cli",
        "wakefulreceived": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return json.dumps({**whole, **attributes}).encode()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "CloudEvent"),
        (changed(specversion="0.3"), "CloudEvent"),
        (changed(id=""), "id is missing"),
        (changed(type=7), "type is not a text"),
        (changed(id="x" * 256), "longer"),
        (changed(source="%ff", wakefulencoded="source"), "utf-8"),
        (changed(wakefulid="7"), "UUID"),
        (changed(wakefulreceived="2026-02-01T00:00:00Z"), "time before"),
        (changed(wakefulsource="nowhere"), "no source 'nowhere'"),
        (changed(type="wakeful.signal"), "reserved"),
        (changed(wakefuldepth=-1), "depth"),
        (changed(data_base64="?"), "base64"),
        (changed(wakefulheaders="[1]"), "headers"),
        (changed(wakefulheaders="[" * 200_000), "nested"),
        (changed(wakefulreceived="0001-01-01T00:00:00Z"), "before 1970"),
        (changed(wakefulreceived="9999-12-31T23:59:59Z"), "in the future"),
        (changed(source=quote(LONG), wakefulencoded="source"), "bytes"),
        (changed(subject=LONG), "bytes"),
        (changed(wakefulsha256="0f" * 40), "SHA-256"),
        (changed(data=b"\\u0000".decode("unicode_escape")), "U|u0000"),
    ],
)
def test_a_line_that_is_none_is_refused_with_its_number_and_the_others_go_on(line: bytes, message: str) -> None:
    loaded = imported(
        b"\n".join([changed(), line, b"", changed(id="3", wakefulid="019b76da-a800-7000-8000-000000000003")])
    )

    assert (loaded.imported, [number for number, _ in loaded.reasons]) == (2, [2]), loaded.reasons
    assert message.split("|")[-1] in loaded.reasons[0][1]


def test_an_id_that_another_event_has_is_refused() -> None:
    loaded = imported(changed() + b"\n" + changed(id="2"))

    assert (loaded.imported, loaded.refused) == (1, 1)
    assert "another event has its id" in loaded.reasons[0][1]


def test_a_line_that_is_too_long_is_refused_without_being_read_whole(settings: Settings) -> None:
    settings.WAKEFUL_MAX_BODY = 1000
    text = (
        changed() + b"\n" + b"x" * 200_000 + b"\n" + changed(id="3", wakefulid="019b76da-a800-7000-8000-000000000003")
    )

    *_, loaded = load(lines_of(BytesIO(text)), by="test")

    assert (loaded.imported, [number for number, _ in loaded.reasons]) == (2, [2])


@pytest.fixture
def in_small_groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {"SCAN": 3, "GROUP": 2, "GROUP_BYTES": 100}.items():
        monkeypatch.setattr(exporting, name, value)
    yield


@pytest.mark.usefixtures("in_small_groups")
def test_an_export_goes_on_after_any_of_its_lines() -> None:
    places = [make_event(data={"n": n}).seq for n in range(7)]

    assert [one.seq for one in export(Search())] == places
    assert [one.seq for one in export(Search(), after=places[3])] == places[4:]
    assert [one.seq for one in export(Search(type="none"))] == []


@pytest.mark.parametrize("cut", [0, 1, 50, -1, -60])
def test_the_command_resumes_a_file_that_was_cut_off_anywhere(tmp_path: Path, cut: int) -> None:
    for n in range(3):
        make_event(data={"n": n})
    file, whole = tmp_path / "events.ndjson", exported()
    file.write_bytes(whole[:cut])

    call_command("export_events", "--output", str(file), "--resume", stderr=StringIO())

    assert file.read_bytes() == whole
    with pytest.raises(CommandError, match="exists"):
        call_command("export_events", "--output", str(file), stderr=StringIO())


def test_the_command_imports_a_file_and_names_lines_that_it_refuses(tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    file.write_bytes(changed() + b"\nnonsense\n")
    out, err = StringIO(), StringIO()

    with pytest.raises(CommandError, match="1 of 2"):
        call_command("import_events", str(file), stdout=out, stderr=err)

    assert out.getvalue() == "1 events imported, 0 known already, 1 lines refused\n"
    assert err.getvalue().startswith("line 2: not JSON")


def test_the_api_exports_in_pieces_that_lead_on_and_imports_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_archive, "PIECE_BYTES", 400)
    for n in range(5):
        make_event(data={"n": n})
    api, whole = Api(), exported()
    url, pieces = "/api/v1/events/export/?type=visitor.*", []
    while url:
        answer = api.client.get(url)
        pieces.append(answer.content)
        url = answer.get("Link", "").partition(">")[0].removeprefix("<")
    leave()

    counts = [
        api.client.post("/api/v1/events/import/", piece, content_type="application/x-ndjson").json()["imported"]
        for piece in pieces
    ]

    assert b"".join(pieces) == whole
    assert (len(pieces) > 2, sum(counts)) == (True, 5)
    assert SEQ.sub(b"", exported()) == SEQ.sub(b"", whole)  # its place is that of the import


def test_the_api_needs_a_permission_of_its_own_for_each() -> None:
    api = Api(["triggers.view_event", "triggers.replay_event"])

    assert api.client.get("/api/v1/events/export/").status_code == 403
    assert api.post("events/import/", b"").status == 403

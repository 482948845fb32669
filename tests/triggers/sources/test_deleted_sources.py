"""A source that is deleted while an event of it is on its way. No foreign key prevents it."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections

from runs.db.sql import execute, fetch
from tests.support.hooks import make_source, post, signed_headers
from tests.support.late import INSERT, session
from tests.support.old_rows import ago, id_of
from tests.support.stack import eventually
from triggers.accept import Incoming, SourceChanged, SourceDeleted, accept, accept_verified
from triggers.events.read import from_strangers, read_events
from triggers.models import Event, Secret, Source
from triggers.sources.webhooks import door, receive
from triggers.sources.webhooks.endpoint import find_endpoint

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.triggers.sources.urls")]
WAITS = "SELECT FROM pg_stat_activity WHERE wait_event = 'relation' AND query ~ '^\\s*INSERT INTO triggers_event'"


def test_a_delivery_whose_source_is_deleted_meanwhile_is_answered_as_any_other_to_no_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = make_source()

    def slow(*given: Any, **named: Any) -> Any:
        received = receive.receive(*given, **named)
        Secret.objects.all().delete()
        source.delete()
        return received

    monkeypatch.setattr(door, "receive", slow)

    assert post(b"{}", signed_headers(b"{}")).status_code == 404
    assert not Event.objects.exists()


@pytest.mark.parametrize("before", [0, 10])  # then the statement is prepared
@pytest.mark.parametrize("is_verified", [False, True])
def test_a_delivery_that_waits_for_the_deletion_of_its_source_leaves_no_event(before: int, is_verified: bool) -> None:
    source = Source.objects.create(slug="shop", kind="hmac")
    other = Source.objects.create(slug="other", kind="hmac")
    state = {one.pk: find_endpoint(one.slug).state for one in (source, other)}

    def record(*ids: str, of: Source) -> None:
        for id in ids:
            event = Incoming(source_id=of.pk, ce_source="test", ce_id=id, type="order.paid")
            if is_verified:
                accept_verified([event], state[of.pk])
            else:
                accept([event])

    with session() as deleting, ThreadPoolExecutor(1) as pool:
        pool.submit(record, *map(str, range(before)), of=other).result()
        deleting.execute("DELETE FROM triggers_source WHERE id = %s", [source.pk])
        recorded = pool.submit(record, "1", of=source)
        eventually(lambda: fetch(WAITS))
        deleting.commit()
        with pytest.raises(SourceChanged if is_verified else SourceDeleted):
            recorded.result()
        pool.submit(connections.close_all).result()
    assert Event.objects.count() == before


def test_an_event_of_a_source_that_is_gone_is_read_as_one_of_strangers() -> None:
    source, id = Source.objects.create(slug="shop", kind="hmac"), id_of(ago(minutes=1))
    execute("DELETE FROM triggers_source WHERE id = %s", [source.pk])
    execute(
        INSERT, {"id": id, "source": source.pk, "type": "order.paid"}
    )  # as a transaction with an older snapshot does

    [event] = read_events([id])
    assert (event.source, event.from_strangers, from_strangers([id])) == ("", True, True)

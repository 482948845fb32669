"""Changes that Debezium Server sends over HTTP."""

import json
from typing import Any

from tests.support.deliveries import NOW, delivery, secrets
from triggers.accept import Incoming
from triggers.sources.webhooks.receive import Receipt, cleaned, receive
from triggers.sources.webhooks.scheme import Sample, schemes

SOURCE = {"connector": "mysql", "db": "shop", "table": "lines", "file": "binlog.7", "pos": 1234, "row": 0}
CHANGE = {"op": "u", "before": {"a": 1, "b": 2, "n": 1}, "after": {"a": 1, "b": 2, "n": 5}, "source": SOURCE}
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def received(body: Any, *, id: str = "m-1") -> Incoming:
    scheme = schemes()["debezium"]
    settings = {"key": "a, b"}
    sample = Sample(body=json.dumps(body).encode(), headers={"webhook-id": id})
    sent = scheme.signed(sample, SECRET.encode(), NOW, scheme.clean_settings(settings))
    receipt = receive(*cleaned("debezium", settings), secrets(SECRET), delivery(sent.body, sent.headers))
    assert isinstance(receipt, Receipt)
    return receipt.event


def test_a_change_has_the_shape_of_all_changes_and_is_known_again_under_another_id_of_its_message() -> None:
    first = received(CHANGE)
    again = received({"schema": {}, "payload": {**CHANGE, "ts_ms": 7}}, id="m-2")

    assert (first.type, first.subject) == ("db.shop.lines.update", "shop.lines/1,2")
    assert (first.data["pk"], first.data["old"]["n"], first.data["new"]["n"]) == ({"a": 1, "b": 2}, 1, 5)
    assert first.data["changed"] == ["n"]
    assert again.ce_id == first.ce_id
    assert received({**CHANGE, "source": {**SOURCE, "row": 1}}).ce_id != first.ce_id


def test_a_body_that_is_no_change_is_an_event_of_standard_webhooks() -> None:
    assert received({"type": "heartbeat"}).type == "heartbeat"
    assert received([{"op": {}}]).type == "webhook.received"

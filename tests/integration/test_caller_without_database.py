"""The requests of a caller outlive an outage of the database that is longer than its lease."""

import time
from functools import partial

import pytest

from tests.integration.courier import APPS, Courier, eventually
from tests.integration.test_left_requests import assert_paid_once, in_flight, wake_many
from tests.support.receiver import receiving
from tests.support.stack import StackMaker
from tests.support.wire import Call, Held, Turn, providing

pytestmark = pytest.mark.chaos


def test_requests_in_flight_while_the_database_is_away_are_made_once(make_stack: StackMaker) -> None:
    with providing() as wire, receiving() as receiver:
        env = {**wire.env, "WAKEFUL_APPS": f"{APPS['WAKEFUL_APPS']},scribe", "WAKEFUL_MODEL": "openai-chat:gpt-4o"}
        courier = Courier(partial(make_stack, own_servers=True), receiver, env)
        courier.up()
        caller = courier.start("caller")
        held = Held()
        wire.script("talk", [Call("pay", number=1)], Turn("done", faults=[held]))
        found = wake_many(courier, many=4)
        eventually(lambda: in_flight(wire, found))
        postgres = courier.stack.servers.postgres
        assert postgres is not None

        postgres.kill()
        time.sleep(3 + 3)  # a lease, and more
        postgres.start()
        eventually(lambda: caller.output().count("caller.ready") == 2)
        time.sleep(3 + 2 + 2)  # a lease, and a look of the dispatcher
        held.release()

        assert_paid_once(courier, wire, found)
        assert caller.is_alive()

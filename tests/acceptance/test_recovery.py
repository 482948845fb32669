"""What comes back by itself while deliveries keep coming in over HTTP; `make bench` measures the same at length.

WAKEFUL_FULL=1 plays PostgreSQL's clean restart too, beside its kill -9.
"""

import os
import time
from statistics import median

import pytest

from bench.recovery import (
    POSTGRES_KILLED,
    POSTGRES_RESTARTED,
    SETTINGS,
    VALKEY_GONE,
    Fault,
    Shop,
    claims_after_killed_children,
    claims_after_killed_workers,
    recover,
)
from tests.support.stack import LENIENCE, StackMaker, eventually, within

pytestmark = [pytest.mark.chaos, pytest.mark.long]

RATE = 4.0  # deliveries a second: little enough for any machine
FAULTS = [POSTGRES_KILLED, POSTGRES_RESTARTED] if os.environ.get("WAKEFUL_FULL") else [POSTGRES_KILLED]


@pytest.fixture(scope="module")
def shop(make_shared_stack: StackMaker) -> Shop:
    """A whole Wakeful on servers that may be killed, with a source; what a test kills comes back."""
    return Shop(make_shared_stack(env=SETTINGS, own_servers=True, agents=True).up())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_postgresql_restarted_under_load_costs_no_rate_and_nothing_that_was_accepted(shop: Shop, fault: Fault) -> None:
    recovery = recover(shop, fault, rate=RATE, before=6, after=14)

    assert (recovery.missing, recovery.twice) == (0, 0)
    assert recovery.back_after is not None


def test_a_worker_reaches_its_broker_within_seconds_of_its_return(shop: Shop) -> None:
    VALKEY_GONE.go(shop.stack.servers)
    event = shop.deliver("1", "effect.wanted")
    time.sleep(13)  # Celery by itself would try again after 2, 6, 12 and 20 s

    VALKEY_GONE.come_back(shop.stack.servers)
    with within(4):
        eventually(lambda: shop.stack.query("SELECT 1 FROM shop_effect WHERE event = %s", event))

    shop.drain()
    assert shop.count([event]) == {"found": 1, "missing": 0, "twice": 0}


def test_a_killed_childs_run_is_claimed_again_within_a_second(shop: Shop) -> None:
    assert median(claims_after_killed_children(shop, 3)) < 1 * LENIENCE


def test_a_killed_workers_run_is_claimed_again_within_ten_seconds(shop: Shop) -> None:
    assert max(claims_after_killed_workers(shop, 1)) < 10 * LENIENCE

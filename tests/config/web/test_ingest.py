"""Deliveries that come together share a transaction, and none of them pays for another one."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import count
from typing import LiteralString

import psutil
import psycopg
import pytest

from tests.config.web.test_shortcut import SECRETS, Request, answer_of, signed, start_web
from tests.support.stack import Stack, StackMaker, eventually

TOGETHER = {"WAKEFUL_INGEST_SESSIONS": "2", "WAKEFUL_MAX_BODY": "200000"}
AT_ONCE = 24
_ids = count()


@pytest.fixture(scope="module")
def web(make_shared_stack: StackMaker) -> Stack:
    return start_web(make_shared_stack(), **TOGETHER)


@pytest.fixture
def new_web(stack: Stack) -> Stack:
    return start_web(stack, **TOGETHER)


def new(body: bytes = b"{}", **more: str) -> Request:
    return signed(body, id_=f"id-{next(_ids)}", **more)


def status(web: Stack, request: Request) -> int:
    return int(answer_of(web, request).split()[1] or 0)


def at_once(web: Stack, requests: Sequence[Request]) -> list[int]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda one: status(web, one), requests))


def recorded(web: Stack, requests: Sequence[Request]) -> int:
    ids = [dict(one.fields)["X-Id"] for one in requests]
    return int(web.query("SELECT count(*)::int AS n FROM triggers_event WHERE ce_id = ANY(%s)", ids)[0]["n"])


def transactions(web: Stack, requests: Sequence[Request]) -> int:
    ids = [dict(one.fields)["X-Id"] for one in requests]
    sql = "SELECT count(DISTINCT xmin::text)::int AS n FROM triggers_event WHERE ce_id = ANY(%s)"
    return int(web.query(sql, ids)[0]["n"])


def test_deliveries_that_come_together_share_transactions(web: Stack) -> None:
    at_once(web, [new() for _ in range(AT_ONCE)])  # it knows the source, and has its sessions

    def share() -> bool:
        requests = [new() for _ in range(AT_ONCE * 10)]
        assert Counter(at_once(web, requests)) == {202: len(requests)}
        assert recorded(web, requests) == len(requests)
        return transactions(web, requests) < len(requests)

    eventually(share)  # on a busy machine they may come one by one, or its sessions may be late


def test_of_equal_deliveries_that_come_together_one_is_the_first(web: Stack) -> None:
    request = new()

    assert Counter(at_once(web, [request] * AT_ONCE)) == {202: 1, 200: AT_ONCE - 1}
    assert recorded(web, [request]) == 1
    redelivered = "SELECT sum(count)::int AS n FROM triggers_redelivery JOIN triggers_event event ON event.id = event_id WHERE ce_id = %s"
    assert web.query(redelivered, dict(request.fields)["X-Id"]) == [{"n": AT_ONCE - 1}]


def test_an_event_that_the_database_refuses_costs_no_other_one(web: Stack) -> None:
    """Whatever the reason; here, a constraint of the user's own."""
    add = "ALTER TABLE triggers_event ADD CONSTRAINT mine CHECK (type <> 'bad') NOT VALID"
    with psycopg.connect(web.database_url, autocommit=True) as own:
        own.execute(add)
        good = [new() for _ in range(AT_ONCE * 4)]
        bad = [Request("/hooks/open/", fields=(("X-Type", "bad"),)) for _ in range(AT_ONCE)]
        mixed = [one for pair in zip(good, bad * 4, strict=True) for one in pair]
        try:
            answers = dict(zip(map(id, mixed), at_once(web, mixed), strict=True))
        finally:
            own.execute("ALTER TABLE triggers_event DROP CONSTRAINT mine")

    assert {answers[id(one)] for one in good} == {202}
    assert {answers[id(one)] for one in bad} == {500}
    assert recorded(web, good) == len(good)


def test_one_that_waits_for_another_session_holds_up_no_other_one(web: Stack) -> None:
    """Its id is being recorded elsewhere, by a process that hangs."""
    held = new()
    same = "INSERT INTO triggers_event SELECT (jsonb_populate_record(event, %s)).* FROM triggers_event event LIMIT 1"
    with psycopg.connect(web.database_url) as other, ThreadPoolExecutor(1) as pool:
        values = {"id": "0198c0de-0000-7000-8000-000000000000", "ce_id": dict(held.fields)["X-Id"]}
        where = {"source_id": str(source_of(web)), "ce_source": "/hooks/shop/", "seq": 2**40}
        other.execute(same, [json.dumps(values | where)])
        waiting = pool.submit(status, web, held)
        eventually(lambda: waits_for_a_lock(web))

        requests = [new() for _ in range(AT_ONCE * 2)]
        assert Counter(at_once(web, requests)) == {202: len(requests)}
        assert not waiting.done()
        other.rollback()
        assert waiting.result() == 202


def test_a_delivery_without_an_id_is_one_event_if_the_answer_of_the_database_is_lost(make_stack: StackMaker) -> None:
    """Its event is committed, and waits for a standby when its session ends."""
    web = start_web(make_stack(own_servers=True), **TOGETHER)
    keyless = Request("/hooks/of-bearer/", fields=(("Authorization", f"Bearer {SECRETS['bearer']}"),))
    with psycopg.connect(web.database_url, autocommit=True) as own, ThreadPoolExecutor(1) as pool:
        eventually(lambda: status(web, keyless) == 202 and sessions(own, TOGETHER_WITH_OTHERS))
        before = keyless_events(web)
        set_standby(own, "one_that_is_away")
        answer = pool.submit(status, web, keyless)
        eventually(lambda: sessions(own, f"{WAITS_FOR_STANDBY} AND {TOGETHER_WITH_OTHERS}"))
        [committed] = sessions(own, WAITS_FOR_STANDBY)
        own.execute("SELECT pg_terminate_backend(%s)", [committed])
        eventually(lambda: sessions(own, WAITS_FOR_STANDBY) not in ([], [committed]))  # it is tried again
        set_standby(own, "")
        assert answer.result() in (200, 202)

    assert keyless_events(web) == before + 1


TOGETHER_WITH_OTHERS: LiteralString = "query LIKE '%FROM (VALUES ($1::uuid%'"
WAITS_FOR_STANDBY: LiteralString = "wait_event = 'SyncRep' AND query LIKE '%INSERT INTO triggers_%'"


def sessions(own: psycopg.Connection[tuple[object, ...]], condition: LiteralString) -> list[object]:
    return [
        pid for (pid,) in own.execute(f"SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND {condition}")
    ]


def set_standby(own: psycopg.Connection[tuple[object, ...]], name: LiteralString) -> None:
    own.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    own.execute("SELECT pg_reload_conf()")


def keyless_events(web: Stack) -> int:
    sql = "SELECT count(*)::int AS n FROM triggers_event WHERE ce_source = '/hooks/of-bearer/'"
    return int(web.query(sql)[0]["n"])


def source_of(web: Stack) -> object:
    return web.query("SELECT id FROM triggers_source WHERE slug = 'shop'")[0]["id"]


def waits_for_a_lock(web: Stack) -> bool:
    sql = "SELECT 1 AS one FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(web.query(sql))


def test_a_large_body_is_verified_beside_the_small_ones(web: Stack) -> None:
    large = [new(b'"' + b"x" * 150_000 + b'"') for _ in range(4)]
    small = [new() for _ in range(AT_ONCE)]

    assert Counter(at_once(web, [*large, *small])) == {202: len(large) + len(small)}
    assert recorded(web, [*large, *small]) == len(large) + len(small)


def test_a_secret_that_is_used_is_noted(new_web: Stack) -> None:
    secret = "SELECT last_matched_at FROM triggers_secret JOIN triggers_source source ON source.id = source_id WHERE slug = 'shop'"
    new_web.query("UPDATE triggers_secret SET last_matched_at = NULL RETURNING 1")
    new_web.query(
        """UPDATE triggers_source SET limits = '{"max_body": 1000}' WHERE slug = 'shop' RETURNING 1"""
    )  # it is read again
    assert status(new_web, Request("/hooks/shop/")) == 401

    assert {status(new_web, new()) for _ in range(3)} == {202}
    eventually(lambda: new_web.query(secret)[0]["last_matched_at"])


@pytest.mark.chaos
def test_a_backlog_closes_this_door_as_well(stack: Stack) -> None:
    web = start_web(stack, **TOGETHER, WAKEFUL_MAX_SOURCE_BACKLOG="10")

    eventually(lambda: status(web, new()) == 503)
    last = answer_of(web, new())
    assert last.split()[1] == b"503"
    assert b"retry-after: 5" in last.lower()


@pytest.mark.chaos
def test_a_server_that_is_read_only_answers_503_until_it_is_not(new_web: Stack) -> None:
    name = new_web.query("SELECT current_database() AS name")[0]["name"]
    assert Counter(at_once(new_web, [new() for _ in range(AT_ONCE)])) == {202: AT_ONCE}
    with psycopg.connect(new_web.database_url, autocommit=True) as own:
        own.execute("SET default_transaction_read_only = off")
        own.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        end_sessions(own)
        try:
            requests = [new() for _ in range(AT_ONCE)]
            assert Counter(at_once(new_web, requests)) == {503: AT_ONCE}
            assert recorded(new_web, requests) == 0
        finally:
            own.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
            end_sessions(own)
    eventually(lambda: set(at_once(new_web, [new() for _ in range(AT_ONCE)])) == {202})


def end_sessions(own: psycopg.Connection[tuple[object, ...]]) -> None:
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    own.execute(others)


@contextmanager
def a_flood(web: Stack) -> Iterator[list[tuple[Request, int]]]:
    """Deliveries without a pause, and the answers so far; 0: none has come."""
    over = threading.Event()
    answers: list[tuple[Request, int]] = []

    def deliver() -> None:
        while not over.is_set():
            request = new()
            try:
                answers.append((request, status(web, request)))
            except (OSError, IndexError):
                answers.append((request, 0))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        senders = [pool.submit(deliver) for _ in range(AT_ONCE)]
        try:
            yield answers
        finally:
            over.set()
        for sender in senders:
            sender.result()


def lost(web: Stack, answers: Sequence[tuple[Request, int]]) -> int:
    """Deliveries that were accepted and are not recorded."""
    accepted = [request for request, found in answers if found == 202]
    assert accepted
    return len(accepted) - recorded(web, accepted)


def test_a_process_that_stops_answers_what_it_has_recorded(new_web: Stack) -> None:
    [process] = new_web.processes
    with a_flood(new_web) as answers:
        eventually(lambda: len(answers) > 300)
        process.stop()
        time.sleep(0.1)

    assert lost(new_web, answers) == 0
    asked = [request for request, _ in answers]
    assert recorded(new_web, asked) == sum(found == 202 for _, found in answers)
    assert {found for _, found in answers} <= {202, 0}


@pytest.mark.chaos
@pytest.mark.parametrize("point", ["before_accept=kill@200", "after_accept=kill@200"])
def test_what_a_killed_process_has_accepted_is_recorded(point: str, stack: Stack) -> None:
    web = start_web(stack, **TOGETHER, WAKEFUL_FAILPOINTS=point)
    with a_flood(web) as answers:
        eventually(lambda: any(found == 0 for _, found in answers))

    assert lost(web, answers) == 0


@pytest.mark.chaos
def test_a_database_that_is_frozen_fills_no_memory_and_what_was_accepted_is_recorded(make_stack: StackMaker) -> None:
    web = start_web(make_stack(own_servers=True), **TOGETHER)
    postgres = web.servers.postgres
    assert postgres
    with a_flood(web) as answers:
        eventually(lambda: len(answers) > 300)
        assert postgres.process
        parent = psutil.Process(postgres.process.pid)
        processes = [parent, *parent.children()]
        for one in processes:
            one.suspend()
        try:
            time.sleep(0.5)  # those under way
            before = len(answers)
            time.sleep(2)
            assert len(answers) - before <= AT_ONCE
        finally:
            for one in processes:
                one.resume()
        eventually(lambda: len(answers) > before + 300)

    assert lost(web, answers) == 0
    assert {found for _, found in answers} <= {202, 200, 503}


def test_nothing_is_printed_that_a_person_must_read(web: Stack) -> None:
    """After all of this: no error of Wakeful's own."""
    with closing(open(web.processes[0].log, errors="replace")) as log:
        assert "Task exception was never retrieved" not in log.read()

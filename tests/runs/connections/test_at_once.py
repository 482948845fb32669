"""Many processes need the token of one connection at once: one of them asks the provider, also if that one is killed."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection as database

from agents.exceptions import NotConnected
from runs.connections import lease as leases
from runs.connections.lease import lease
from runs.models import Connection
from tests.support.connections import connected, later
from tests.support.moved_clock import MovedClock, can_move_clocks
from tests.support.oauth_server import OAuthServer
from tests.support.stack import ROOT

pytestmark = pytest.mark.django_db(transaction=True)

LEASES = """
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
import django; django.setup()
from agents.exceptions import NotConnected
from runs.connections.lease import lease
def digest(_):
    try:
        return sha256(lease("mail").token.encode()).hexdigest()
    except NotConnected as error:
        return type(error).__name__
print("ready", flush=True); many = int(sys.stdin.readline())
with ThreadPoolExecutor(many) as pool: print(*set(pool.map(digest, range(many))))
"""


def process(**env: str) -> subprocess.Popen[str]:
    at = database.settings_dict
    url = f"postgresql://{at['USER']}:{at['PASSWORD']}@{at['HOST']}:{at['PORT']}/{at['NAME']}"
    given = {**os.environ, "DATABASE_URL": url, "WAKEFUL_HTTP_NETWORKS": "127.0.0.0/8", **env}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", LEASES], env=given, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)


def answer_of(one: subprocess.Popen[str]) -> str:
    with one:
        return one.communicate(timeout=60)[0]


def die(one: subprocess.Popen[str]) -> None:
    begin(one)
    with one:
        assert one.wait(60) == -9


def begin(*started: subprocess.Popen[str], threads: int = 25) -> None:
    for one in started:
        assert one.stdout and one.stdout.readline() == "ready\n"
    for one in started:
        assert one.stdin
        one.stdin.write(f"{threads}\n")
        one.stdin.flush()


def test_fifty_threads_that_need_a_token_send_one_request(provider: OAuthServer) -> None:
    connected(provider, left=-5)
    together = threading.Barrier(50)

    def take(_: int) -> str:
        together.wait()
        try:
            return lease("mail").token
        finally:
            database.close()

    with ThreadPoolExecutor(50) as pool:
        tokens = set(pool.map(take, range(50)))

    assert len(tokens) == 1
    assert len(provider.asked) == 1


def test_the_old_token_serves_while_another_process_renews_it(provider: OAuthServer) -> None:
    made = connected(provider, left=200)
    provider.gate = threading.Event()

    def renew() -> None:
        lease("mail")
        database.close()

    renewing = threading.Thread(target=renew)
    renewing.start()
    while not provider.asked:
        pass

    leases._locks.clear()  # as another process, which has locks of its own
    assert lease("mail").token == provider.given[0]

    provider.gate.set()
    renewing.join()
    made.refresh_from_db()
    assert len(provider.asked) == 1 and made.claim is None


@pytest.mark.chaos
@pytest.mark.parametrize(("processes", "threads"), [(4, 25), (10, 10)])
def test_a_hundred_threads_of_processes_that_need_a_token_send_one_request(
    processes: int, threads: int, provider: OAuthServer
) -> None:
    connected(provider, left=-5)
    started = [process() for _ in range(processes)]
    begin(*started, threads=threads)

    answers = {answer_of(one) for one in started}

    assert len(answers) == 1 and len(answers.pop().split()) == 1
    assert len(provider.asked) == 1


@pytest.mark.chaos
@pytest.mark.skipif(not can_move_clocks(), reason="needs Linux and a C compiler")
def test_processes_whose_clocks_are_hours_apart_send_one_request(provider: OAuthServer, tmp_path: Path) -> None:
    connected(provider, left=-5)
    started = []
    for hours in (-7, 0, 7):
        (folder := tmp_path / str(hours)).mkdir()
        clock = MovedClock(folder)
        clock.move(timedelta(hours=hours))
        started.append(process(**clock.env))
    begin(*started)

    answers = {answer_of(one) for one in started}

    assert len(answers) == 1 and len(answers.pop().split()) == 1
    assert len(provider.asked) == 1


@pytest.mark.chaos
def test_a_refusal_ends_the_connection_for_all_processes_with_one_request(provider: OAuthServer) -> None:
    made = connected(provider, left=-5)
    provider.withdraw()
    started = [process() for _ in range(4)]
    begin(*started)

    for one in started:
        assert answer_of(one).split() == ["NotConnected"]
    made.refresh_from_db()
    assert (made.state, len(provider.asked)) == ("refused", 1)


@pytest.mark.chaos
@pytest.mark.parametrize("point", ["after_connection_claim", "after_connection_answer"])
def test_a_killed_process_holds_up_the_others_until_its_claim_ends(point: str, provider: OAuthServer) -> None:
    provider.rotates = False
    made = connected(provider, left=-5)
    dying = process(WAKEFUL_FAILPOINTS=f"{point}=kill")
    others = [process() for _ in range(2)]
    die(dying)
    made.refresh_from_db()
    assert made.claim and made.unanswered == 1
    begin(*others)

    asked = len(provider.asked)
    later(made, 41)  # the claim ends

    answers = {answer_of(one) for one in others}
    assert len(answers) == 1
    assert len(provider.asked) == asked + 1
    made = Connection.objects.get(pk=made.pk)
    assert (made.state, made.claim, made.unanswered) == ("connected", None, 0)


@pytest.mark.chaos
def test_a_process_that_is_killed_with_a_rotated_token_leaves_a_connection_that_says_so(provider: OAuthServer) -> None:
    made = connected(provider, left=-5)
    dying = process(WAKEFUL_FAILPOINTS="after_connection_answer=kill")
    die(dying)
    later(made, 41)

    for _ in range(3):
        with pytest.raises(NotConnected, match="The answer to an earlier request was lost"):
            lease("mail")

    assert len(provider.asked) == 2

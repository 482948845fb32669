"""The embedded servers: data survives, crashes recover, and what cannot work is refused with the reason."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from config.stack import embedded
from config.stack.embedded import EmbeddedError, postgres
from tests.support.servers import reachable_folder


@pytest.fixture
def home() -> Iterator[Path]:
    with reachable_folder() as folder:
        yield folder


def joined(lines: list[str]) -> str:
    return "\n".join(lines)


def test_data_and_addresses_survive_a_restart(home: Path) -> None:
    with embedded.servers(home, durable=False) as first:
        urls = first.urls
        run(urls["DATABASE_URL"], "CREATE TABLE kept (x int)")

    with embedded.servers(home, durable=False) as second:
        assert second.urls == urls
        run(urls["DATABASE_URL"], "SELECT * FROM kept")


def test_a_second_stack_on_the_same_home_is_refused_with_the_process_that_holds_it(home: Path) -> None:
    with (
        embedded.locked(home),
        pytest.raises(EmbeddedError, match=f"process {os.getpid()}.*WAKEFUL_HOME and WAKEFUL_PORT"),
    ):
        with embedded.locked(home):
            pass


def test_a_taken_port_is_replaced_with_a_message(home: Path) -> None:
    lines: list[str] = []
    with embedded.servers(home, valkey=False, durable=False) as servers:
        assert servers.postgres
        port = servers.postgres.port

    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", port))
        squatter.listen()
        with embedded.servers(home, valkey=False, durable=False, say=lines.append) as servers:
            assert servers.postgres
            assert servers.postgres.port != port

    assert f"Port {port} of PostgreSQL is taken" in joined(lines)


def test_a_stale_pid_file_of_another_process_does_not_stop_the_start(home: Path) -> None:
    with embedded.servers(home, valkey=False, durable=False) as servers:
        assert servers.postgres
        servers.postgres.kill()
        stale = servers.postgres.data / "postmaster.pid"
        lines = stale.read_text().splitlines()
        stale.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")

        servers.postgres.start()

        run(servers.urls["DATABASE_URL"], "SELECT 1")


def test_servers_die_with_the_process_that_started_them(home: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("needs PDEATHSIG, which only Linux has; elsewhere the next start stops what was left")
    script = (
        "import sys, time; from pathlib import Path; from config.stack import embedded\n"
        "with embedded.servers(Path(sys.argv[1]), durable=False) as s:\n"
        "    print(s.postgres.process.pid, s.valkey.process.pid, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(home)], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout
        pids = [int(pid) for pid in starter.stdout.readline().split()]
        starter.kill()

    from config.stack.children import command_of
    from tests.support.stack import eventually

    assert len(pids) == 2
    eventually(lambda: not any(command_of(pid) for pid in pids))


def test_data_of_another_major_version_is_refused_with_the_fix(home: Path) -> None:
    server = postgres.Postgres(home, durable=False)
    server.data.mkdir()
    (server.data / "PG_VERSION").write_text("9\n")

    with pytest.raises(EmbeddedError, match="made by PostgreSQL 9, and this machine has only .* Install PostgreSQL 9"):
        server.start()


def test_a_crash_loses_no_commit(home: Path) -> None:
    with embedded.servers(home, valkey=False, durable=False) as servers:
        assert servers.postgres
        run(servers.postgres.url, "CREATE TABLE kept (x int)")

        servers.postgres.kill()
        servers.postgres.start()

        run(servers.postgres.url, "SELECT * FROM kept")


def run(url: str, sql: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql)

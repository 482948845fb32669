"""The PostgreSQL that every process of a test run begins with."""

import os
from pathlib import Path

import psycopg

from config.stack import embedded
from runs.db.schema_check import needed_migrations
from tests.support.migrated import DATABASE, SHARED, take
from tests.support.servers import reachable_folder


def test_each_process_has_a_migrated_database_of_its_own(tmp_path: Path) -> None:
    shared = Path(os.environ.get(SHARED, tmp_path))
    ports = set()
    with reachable_folder() as one, reachable_folder() as other:
        for home in (one, other):
            take(shared, home)
        with (
            embedded.servers(one, valkey=False, durable=False) as first,
            embedded.servers(other, valkey=False, durable=False) as second,
        ):
            for postgres in (first.postgres, second.postgres):
                assert postgres
                ports.add(postgres.port)
                with psycopg.connect(postgres.url_of(DATABASE)) as connection:
                    applied = connection.execute("SELECT app, name FROM django_migrations").fetchall()
                assert set(needed_migrations()) <= set(applied)
    assert len(ports) == 2

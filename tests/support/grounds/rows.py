from collections import Counter
from contextlib import suppress

import psycopg

from tests.support.grounds.ground import Ground
from tests.support.stack import Stack


class Rows(Ground):
    """Rows of a table of ours: bulk statements, a transaction that is rolled back, and a session that is ended within one."""

    agent = "rows"
    count = 100

    def move(self, stack: Stack) -> None:
        with psycopg.connect(stack.database_url, autocommit=True) as session:
            session.execute(f"INSERT INTO auth_group (name) SELECT 'row ' || n FROM generate_series(1, {self.count}) n")
            with session.transaction(force_rollback=True):
                session.execute("UPDATE auth_group SET name = name || ' lost' WHERE name LIKE 'row %'")
            with psycopg.connect(stack.database_url) as other, suppress(psycopg.OperationalError):
                other.execute("UPDATE auth_group SET name = name || ' lost' WHERE name LIKE 'row %'")
                session.execute("SELECT pg_terminate_backend(%s)", [other.info.backend_pid])
                other.commit()
            session.execute("UPDATE auth_group SET name = name || ' kept' WHERE name LIKE 'row %'")

    def is_complete(self, stack: Stack) -> bool:
        return len(stack.query("SELECT 1 FROM triggers_event WHERE type LIKE 'db.auth.group.%%'")) >= 2 * self.count

    def check(self, stack: Stack) -> None:
        found = stack.query(
            "SELECT type, data->'new'->>'name' AS name FROM triggers_event WHERE type LIKE 'db.auth.group.%%' ORDER BY seq"
        )
        made = [("db.auth.group.insert", f"row {n}") for n in range(1, self.count + 1)]
        kept = [("db.auth.group.update", f"row {n} kept") for n in range(1, self.count + 1)]
        assert [(row["type"], row["name"]) for row in found[: self.count]] == made
        assert sorted((row["type"], row["name"]) for row in found[self.count :]) == sorted(kept)
        seen = [(result["new"]["name"], tuple(result["changed"])) for result in self.results(stack)]
        assert Counter(seen) == Counter([*((name, ()) for _, name in made), *((name, ("name",)) for _, name in kept)])

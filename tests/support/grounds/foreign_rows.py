from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

from tests.support.foreign import PASSWORD, ForeignDatabase
from tests.support.grounds.ground import Ground
from tests.support.stack import Stack, eventually
from triggers.sources.edit import create_source
from triggers.sources.secrets import add_secret

Change = tuple[str, int, int | None, int | None]  # operation, id, old and new version

ROUNDS, BULK = 10, 20


class Session:
    """A session of the other database; its changes count when they are committed."""

    def __init__(self, url: str, committed: list[Change]) -> None:
        self.connection = psycopg.connect(url)
        self.committed = committed
        self.changes: list[Change] = []

    def insert(self, *ids: int) -> None:
        self.connection.execute("INSERT INTO items SELECT unnest(%s::int[]), 1", [list(ids)])
        self.changes += [("insert", id, None, 1) for id in ids]

    def update(self, id: int, old: int) -> None:
        self.connection.execute("UPDATE items SET version = %s WHERE id = %s", [old + 1, id])
        self.changes.append(("update", id, old, old + 1))

    def delete(self, id: int, old: int) -> None:
        self.connection.execute("DELETE FROM items WHERE id = %s", [id])
        self.changes.append(("delete", id, old, None))

    def commit(self) -> None:
        self.connection.commit()
        self.committed += self.changes
        self.changes = []

    def roll_back(self) -> None:
        self.connection.rollback()
        self.changes = []


class ForeignRows(Ground):
    """Rows of a database that is not ours, read from its replication slot: transactions that overlap, one that is rolled back,
    a savepoint that is, and a session that is ended within one."""

    agent = "items"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.committed: list[Change] = []

    def prepare(self, stack: Stack) -> None:
        self.foreign = self.enter_context(ForeignDatabase(stack.database_url))
        self.foreign.run("CREATE TABLE items (id int PRIMARY KEY, version int)")
        self.foreign.run("ALTER TABLE items REPLICA IDENTITY FULL")
        self.foreign.publish("items")
        with stack.orm():
            source = create_source("shop", kind="postgresql", settings=self.foreign.settings, by="test")
            add_secret(source, PASSWORD, by="test")

    def move(self, stack: Stack) -> None:
        for number in range(ROUNDS):
            self._change(100 * number)
            if number % 2:
                eventually(lambda: self.is_complete(stack))

    def _change(self, first: int) -> None:
        early, late, lost, ended = (Session(self.foreign.owner_url, self.committed) for _ in range(4))
        early.insert(first, first + 1)
        late.insert(first + 2)
        lost.insert(first + 3)
        ended.insert(first + 4)
        early.update(first, 1)
        late.update(first + 2, 1)
        with late.connection.transaction(force_rollback=True):
            late.connection.execute("DELETE FROM items WHERE id = %s", [first + 2])
        self.foreign.run("SELECT pg_terminate_backend(%s)", ended.connection.info.backend_pid)
        lost.roll_back()
        late.commit()
        early.delete(first + 1, 1)
        early.commit()
        late.update(first, 2)
        late.insert(*range(first + 10, first + 10 + BULK))
        late.commit()
        for session in (early, late, lost, ended):
            session.connection.close()

    def is_complete(self, stack: Stack) -> bool:
        return len(self._recorded(stack)) >= len(self.committed)

    def check(self, stack: Stack) -> None:
        assert self._recorded(stack) == self.committed
        assert Counter(map(change_of, self.results(stack))) == Counter(self.committed)
        assert not stack.query("SELECT reason FROM triggers_poisonmessage")

    def _recorded(self, stack: Stack) -> list[Change]:
        rows = stack.query("SELECT type, data FROM triggers_event WHERE type LIKE 'db.public.items.%%' ORDER BY seq")
        return [change_of({"type": row["type"], **row["data"]}) for row in rows]


def change_of(seen: dict[str, Any]) -> Change:
    old, new = seen["old"] or {}, seen["new"] or {}
    return seen["type"].rpartition(".")[2], seen["pk"], old.get("version"), new.get("version")

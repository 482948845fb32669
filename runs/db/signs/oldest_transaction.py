"""The oldest open transaction of this database."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings

from runs.sign import WARNING, Problem, Sign, age, span

SQL = f"""
SELECT pid, coalesce(usename, '') AS "user", application_name AS application, coalesce(state, '') AS state,
  left(query, 200) AS query, '' AS prepared, {age("xact_start")} AS age
FROM pg_stat_activity
WHERE xact_start IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
UNION ALL
SELECT 0, owner, '', 'prepared', '', gid, {age("prepared")} FROM pg_prepared_xacts WHERE database = current_database()
ORDER BY age DESC
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Transaction:
    """A prepared transaction has a name and no process."""

    pid: int
    user: str
    application: str
    state: str
    query: str
    age: float
    prepared: str = ""


def problems(rows: Sequence[Transaction]) -> Iterator[Problem]:
    for oldest in rows:
        if oldest.age > settings.WAKEFUL_ALARM_TRANSACTION.total_seconds():
            yield Problem(
                name="transaction",
                severity=WARNING,
                text=f"A transaction of {oldest.application or oldest.user} ({_where(oldest)}) has been "
                f"open for {span(oldest.age)}. VACUUM cannot remove rows that died since then, so every look at a queue "
                "reads past them: dispatch, timers and claims get slower the longer it lasts.",
                remedy=f"End it in the program that opened it, or: {_ending(oldest)}",
                lasted=timedelta(seconds=oldest.age),
                alarm_after=settings.WAKEFUL_ALARM_TRANSACTION,
            )


def _where(transaction: Transaction) -> str:
    if transaction.prepared:
        return f"prepared as {transaction.prepared!r}"
    return f"PostgreSQL process {transaction.pid}, {transaction.state}"


def _ending(transaction: Transaction) -> str:
    if transaction.prepared:
        return f"ROLLBACK PREPARED '{transaction.prepared}'"
    return f"SELECT pg_terminate_backend({transaction.pid})"


OLDEST_TRANSACTION = Sign(
    name="oldest_transaction", sql=SQL, row=Transaction, problems=problems, kinds=("transaction",), limit=1
)

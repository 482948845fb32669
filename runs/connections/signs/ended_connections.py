"""Connections that give no token, or will soon give none, until a person acts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import BAD, WARNING, More, Problem, Sign, age, fault, is_raised, span

BEFORE = timedelta(days=7)  # its end is announced
# A token that lives for an hour and cannot be renewed is announced when it has ended.
LONG_LIVED = timedelta(days=2)

SQL = f"""
SELECT name, owner, provider, state, reason, failures,
  {age("failing_since")} AS failing, extract(epoch FROM ends_at - clock_timestamp())::float8 AS ends_in
FROM (
  SELECT connection.*, CASE
    WHEN "grant" = 'client_credentials' THEN NULL
    WHEN refresh_token IS NOT NULL THEN refresh_expires_at
    WHEN expires_at - refreshed_at > %(connection_long_lived)s::interval THEN expires_at
  END AS ends_at
  FROM runs_connection connection
) found
WHERE state IN ('refused', 'expired') OR failing_since IS NOT NULL
  OR (state = 'connected' AND ends_at < clock_timestamp() + %(connection_before)s::interval)
ORDER BY {is_raised("'connection-ended:' || name")} DESC, name
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class EndedConnection:
    """A connection that has ended (`state`), has failed for so many seconds, or ends in so many."""

    name: str
    owner: str
    provider: str
    state: str
    reason: str
    failures: int
    failing: float | None
    ends_in: float | None

    @property
    def whose(self) -> str:
        return f"Connection {self.name}" + (f" of {self.owner}" if self.owner else "")


def problems(rows: Sequence[EndedConnection]) -> Iterator[Problem]:
    for one in rows:
        again = f"Open connection {one.name} in the admin, and connect it again."
        if one.state in ("refused", "expired"):
            yield Problem(
                name=f"connection-ended:{one.name}",
                severity=BAD,
                text=f"{one.whose} ({one.provider}) is {one.state}: {one.reason}. What uses it fails.",
                remedy=again,
            )
        elif one.failing is not None:
            yield fault(
                name=f"connection-failing:{one.name}",
                seconds=one.failing,
                text=f"{one.whose} ({one.provider}) has got no new token for {span(one.failing)}: {one.reason}.",
                remedy="It is tried again when it is needed. If the provider is well, check the client id and the secret, then test it.",
            )
        elif one.ends_in is not None:
            yield Problem(
                name=f"connection-ends:{one.name}",
                severity=WARNING,
                text=f"{one.whose} ({one.provider}) ends in {span(one.ends_in)}, and nothing can renew it.",
                remedy=again,
            )


ENDED_CONNECTIONS = Sign(
    name="ended_connections",
    sql=SQL,
    row=EndedConnection,
    problems=problems,
    kinds=("connection-ended", "connection-failing", "connection-ends"),
    parameters=lambda: {"connection_before": BEFORE, "connection_long_lived": LONG_LIVED},
    more=More(name="connection-ended", severity=BAD, what="Connections that need a person"),
)

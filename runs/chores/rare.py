"""Work that there seldom is: one question for all of it, asked once in a safety look beside what each look asks."""

from dataclasses import dataclass

from runs import keys

# The parts are of indexes, or of tables that are empty without such work.
ASK = f"""
SELECT EXISTS (SELECT FROM runs_wait WHERE status = 'open' AND kind = 'budget') AS budget_waits,
  EXISTS (SELECT FROM runs_reservation) AS reservations,
  EXISTS (SELECT FROM runs_modelcall) OR EXISTS (SELECT FROM runs_wait WHERE status = 'open' AND kind = 'model') AS requests,
  EXISTS (SELECT FROM runs_incident WHERE tell_at <= (SELECT clock_timestamp())) AS incidents,
  EXISTS (SELECT FROM runs_run WHERE {keys.BLOCKED} AND key IS NOT NULL) AS blocked
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Rare:
    """What there may be: runs that wait for budget; reservations; requests that are left to callers; incidents whose
    time has come; runs that are blocked behind their key. All of it, where that could not be read."""

    budget_waits: bool = True
    reservations: bool = True
    requests: bool = True
    incidents: bool = True
    blocked: bool = True

    @property
    def is_waited_for(self) -> bool:
        """Is this kept for processes that may die, or runs that wait? Then a look comes soon."""
        return self.budget_waits or self.reservations or self.requests

"""Decisions of a trigger that repeatedly fail to be dispatched again or dropped."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.sign import BAD, More, Problem, Sign, is_raised

FAILURES = 2  # in a row; more are a problem
SQL = f"""
SELECT trigger.slug, offer.outcome, offer.drop, left(offer.error, 300) AS error
FROM triggers_offer offer JOIN triggers_trigger trigger ON trigger.id = offer.trigger_id
WHERE offer.failures > {FAILURES}
ORDER BY {is_raised("'offer:' || trigger.slug || ':' || offer.outcome")} DESC, trigger.slug, offer.outcome
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class StuckOffer:
    slug: str
    outcome: str
    drop: bool
    error: str


def problems(rows: Sequence[StuckOffer]) -> Iterator[Problem]:
    for one in rows:
        which = "Events that ended in an error" if one.outcome == "error" else "Held events"
        action = "dropped" if one.drop else "dispatched again"
        yield Problem(
            name=f"offer:{one.slug}:{one.outcome}",
            severity=BAD,
            text=f"{which} of trigger {one.slug} cannot be {action}: {one.error}. They are kept and retried every 30 s.",
            remedy="Fix the cause; the dispatcher's log has the traceback. The next retry then succeeds.",
        )


STUCK_OFFERS = Sign(
    name="stuck_offers",
    sql=SQL,
    row=StuckOffer,
    problems=problems,
    kinds=("offer", "offers"),
    more=More(name="offers", severity=BAD, what="Offers of events that keep failing"),
)

"""Subscriptions that Wakeful has disabled, or whose endpoints fail."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import BAD, WARNING, More, Problem, Sign, age, is_raised, span

FAILING = timedelta(hours=1)  # a shorter failure of an endpoint may be a deploy
SQL = f"""
SELECT slug, address, disabled_reason, left(error, 300) AS error, {age("failing_since")} AS seconds
FROM triggers_subscription WHERE disabled_reason <> '' OR enabled AND failing_since IS NOT NULL
ORDER BY {is_raised("'subscription-disabled:' || slug")} DESC, {is_raised("'subscription-failing:' || slug")} DESC,
  disabled_reason = '', slug
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class FailingSubscription:
    """A subscription that Wakeful has disabled, for a reason, or whose attempts have failed for so many seconds."""

    slug: str
    address: str
    disabled_reason: str
    error: str
    seconds: float | None


def problems(rows: Sequence[FailingSubscription]) -> Iterator[Problem]:
    for one in rows:
        lasted = timedelta(seconds=one.seconds or 0)
        if one.disabled_reason:
            yield Problem(
                name=f"subscription-disabled:{one.slug}",
                severity=BAD,
                text=f"Subscription {one.slug} ({one.address}) was disabled: {one.disabled_reason}. No event is sent to it.",
                remedy="Correct its URL or the endpoint, enable the subscription, and redeliver what failed; or disable it "
                "yourself, or delete it, if it is not needed any more.",
            )
        else:
            yield Problem(
                name=f"subscription-failing:{one.slug}",
                severity=WARNING,
                text=f"Every attempt to send events to subscription {one.slug} ({one.address}) has failed for "
                f"{span(lasted.total_seconds())}: {one.error}. They are repeated.",
                remedy="Correct its URL or the endpoint. This ends with the next event that is delivered; after 5 days without "
                "one the subscription is disabled.",
                lasted=lasted,
                alarm_after=FAILING,
            )


FAILING_SUBSCRIPTIONS = Sign(
    name="failing_subscriptions",
    sql=SQL,
    row=FailingSubscription,
    problems=problems,
    kinds=("subscription-disabled", "subscription-failing", "subscriptions"),
    more=More(name="subscriptions", severity=BAD, what="Subscriptions whose endpoints fail"),
)

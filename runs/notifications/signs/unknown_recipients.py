"""Names that agents have sent notifications to in the last day, and that no recipient or group has."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.sign import COUNTED, WARNING, Problem, Sign, is_raised

SQL = f"""
SELECT name FROM (
  SELECT DISTINCT name FROM (
    SELECT name FROM runs_delivery WHERE recipient_id IS NULL AND status = 'suppressed' AND reason LIKE 'unknown recipient%%'
      AND created_at > (SELECT clock_timestamp()) - interval '1 day' LIMIT {COUNTED}) lately) unknown
WHERE NOT EXISTS (SELECT FROM runs_recipient known WHERE known.name = unknown.name)
  AND NOT EXISTS (SELECT FROM runs_recipientgroup known WHERE known.name = unknown.name)
ORDER BY {is_raised("'unknown-recipient:' || unknown.name")} DESC, name
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class UnknownRecipient:
    name: str


def problems(rows: Sequence[UnknownRecipient]) -> Iterator[Problem]:
    for unknown in rows:
        yield Problem(
            name=f"unknown-recipient:{unknown.name}",
            severity=WARNING,
            text=f"Notifications were sent to {unknown.name!r} in the last day, and no recipient or group has that name.",
            remedy="Create the recipient or group, or correct `to=` in the agent, or WAKEFUL_ESCALATE_TO.",
        )


UNKNOWN_RECIPIENTS = Sign(
    name="unknown_recipients", sql=SQL, row=UnknownRecipient, problems=problems, kinds=("unknown-recipient",)
)

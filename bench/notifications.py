"""10,000 notifications for 50 recipients under their rules, through a real dispatcher: how fast they are planned and sent, and whether
everything adds up, recipient by recipient."""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.ground.own_stack import own_stack
from tests.support.post_office import ServerProcess
from tests.support.stack import Stack, eventually

NOTIFICATIONS, RECIPIENTS, IN_THE_GROUP = 10_000, 50, 10
PATIENCE = 600.0  # seconds
SETTINGS = {"WAKEFUL_LOG_LEVEL": "WARNING"}
# They get what names them alone, so no alarm of this installation. A fifth each: at once; spaced; a digest; quiet all day; high
# urgency alone. Every second one is a webhook, the others inboxes.
ADD_RECIPIENTS = """
WITH asked (hook, recipients, members) AS (VALUES (%s::text, %s::int, %s::int)),
made AS (
  INSERT INTO runs_recipient (
    name, address, channel, host, is_from_settings, gets_all, zone, spacing, digest_hour, quiet_from, quiet_until,
    least_urgency, repeat_after, second_after, active)
  SELECT 'r' || n, CASE WHEN mod(n, 2) = 0 THEN asked.hook ELSE 'inbox:a' END, CASE WHEN mod(n, 2) = 0 THEN 'webhook' ELSE 'inbox' END,
    CASE WHEN mod(n, 2) = 0 THEN '127.0.0.1' ELSE '' END, false, false, 'Europe/Vienna',
    CASE WHEN mod(n, 5) IN (1, 3) THEN interval '30 minutes' ELSE interval '0' END, CASE WHEN mod(n, 5) = 2 THEN 8 END,
    CASE WHEN mod(n, 5) = 3 THEN time '00:00' END, CASE WHEN mod(n, 5) = 3 THEN time '23:59' END,
    CASE WHEN mod(n, 5) = 4 THEN 'high' ELSE 'low' END, interval '1 day', interval '10 minutes', true
  FROM asked, generate_series(0, asked.recipients - 1) n
  RETURNING id, substr(name, 2)::int AS n),
office AS (INSERT INTO runs_recipientgroup (name) VALUES ('office') RETURNING id)
INSERT INTO runs_recipientgroup_members (recipientgroup_id, recipient_id)
SELECT office.id, made.id FROM asked, office, made WHERE made.n < asked.members RETURNING id
"""
# A third has one of 40 texts about one of 100 topics; a tenth is urgent; a twentieth goes to the group.
TELL = """
INSERT INTO runs_notification (sender, urgency, text, topic, "to")
SELECT 'bench', CASE WHEN mod(n, 10) = 1 THEN 'high' WHEN mod(n, 10) < 6 THEN 'normal' ELSE 'low' END,
  CASE WHEN mod(n, 3) = 0 THEN 'text ' || mod(n * 7919, 40) ELSE 'text ' || n || ' of its own' END,
  CASE WHEN mod(n, 3) = 0 THEN 'topic ' || mod(n * 104729, 100) ELSE '' END,
  CASE WHEN mod(n, 20) = 0 THEN ARRAY['office'] ELSE ARRAY['r' || mod(n, 50)] END
FROM generate_series(1, %s::int) n RETURNING id
"""
ASKED = """
SELECT name, count(*) AS count FROM (
  SELECT unnest("to") AS name FROM runs_notification WHERE "to" <> '{office}'
  UNION ALL
  SELECT recipient.name FROM runs_notification told, runs_recipientgroup_members member
  JOIN runs_recipient recipient ON recipient.id = member.recipient_id WHERE told."to" = '{office}') asked
GROUP BY name
"""
BECAME = "SELECT name, status, count(*) AS count FROM runs_delivery GROUP BY name, status"
UNPLANNED = "SELECT 1 FROM runs_notification WHERE planned_at IS NULL LIMIT 1"
WAITING = "SELECT 1 FROM runs_delivery WHERE status IN ('pending', 'held', 'sending') LIMIT 1"
NIGHT_IS_OVER = "UPDATE runs_delivery SET due_at = now() WHERE status = 'held' RETURNING id"
TIMES = """
SELECT extract(epoch FROM max(planned_at) - min(planned_at))::float8 AS planned,
  extract(epoch FROM (SELECT max(sent_at) FROM runs_delivery) - min(planned_at))::float8 AS sent
FROM runs_notification WHERE sender = 'bench'
"""

Say = Callable[[str], None]


def section(say: Say) -> Iterator[str]:
    """Lines of Markdown."""
    with TemporaryDirectory() as folder, own_stack(SETTINGS) as stack:
        hook = ServerProcess("hook", Path(folder) / "hook")
        try:
            yield from table(*measured(stack, hook, say))
        finally:
            hook.kill()


def measured(stack: Stack, hook: ServerProcess, say: Say) -> tuple[Counter[str], Counter[str], float, float]:
    """What was planned, what became of it, and the seconds of both."""
    address = f"http://127.0.0.1:{hook.port}/hook"
    stack.query(ADD_RECIPIENTS, address, RECIPIENTS, IN_THE_GROUP)
    stack.query(TELL, NOTIFICATIONS)
    say(f"notifications: {NOTIFICATIONS:,} for {RECIPIENTS} recipients")
    stack.start("dispatcher")
    eventually(lambda: not stack.query(UNPLANNED), timeout=PATIENCE)
    planned = sum(outcomes(stack).values(), Counter[str]())
    stack.query(NIGHT_IS_OVER)
    eventually(lambda: not stack.query(WAITING), timeout=PATIENCE)
    [times] = stack.query(TIMES)
    by_name = outcomes(stack)
    asked = {row["name"]: row["count"] for row in stack.query(ASKED)}
    assert {name: counts.total() for name, counts in by_name.items()} == asked, "a recipient's deliveries do not add up"
    ids = [id for id, _ in hook.taken]
    through_hook = stack.query(
        "SELECT count(*) AS count FROM runs_delivery WHERE channel = 'webhook' AND status = 'sent'"
    )
    assert len(ids) == len(set(ids)) == through_hook[0]["count"], "a message arrived twice, or not at all"
    return planned, sum(by_name.values(), Counter[str]()), times["planned"], times["sent"]


def outcomes(stack: Stack) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for row in stack.query(BECAME):
        found[row["name"]][row["status"]] += row["count"]
    return found


def table(planned: Counter[str], final: Counter[str], planned_in: float, sent_in: float) -> Iterator[str]:
    said = ", ".join(f"{final[status]:,} {status}" for status in sorted(final))
    yield "| | |"
    yield "|---|---|"
    yield f"| notifications, recipients | {NOTIFICATIONS:,}, {RECIPIENTS} |"
    yield f"| deliveries, which add up for each recipient | {final.total():,}: {said} |"
    yield f"| held until the end of the night | {planned['held']:,} |"
    yield f"| deliveries planned, per second | {final.total() / planned_in:,.0f} |"
    yield f"| messages sent, per second, beginning with the planning | {final['sent'] / sent_in:,.0f} |"


def main() -> None:
    for line in section(lambda what: print(f"… {what}", file=sys.stderr, flush=True)):
        print(line, flush=True)


if __name__ == "__main__":
    main()

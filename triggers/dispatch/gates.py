"""The book of the gates: the answers of each trigger's gate, its state, and decisions on events for which it was quiet.
A port of `runs`, which calls the gates (`runs.attempt.gate`).
"""

from uuid import UUID

from psycopg.types.json import Jsonb

from runs.db.nudge import nudge_later
from runs.db.sql import execute, fetch
from runs.ports import GateSubject, Last
from triggers.models import Gate

REASON_LENGTH = 500
# All gates of a trigger write its row. A child that freezes with the row's lock would make the others miss their deadlines, so
# PostgreSQL ends its session.
IF_AWAKE = "set_config('idle_in_transaction_session_timeout', '5s', true) IS NOT NULL"
COUNT = f"""
INSERT INTO triggers_gate AS gate (trigger_id, agent, revision, quiet, fired, failed, in_a_row, last_answer, last_reason, last_at)
SELECT id, %(agent)s::text, 0, (%(answer)s::text = 'quiet')::int, (%(answer)s::text = 'fired')::int, (%(answer)s::text = 'failed')::int,
       1, %(answer)s::text, %(reason)s::text, clock_timestamp()
FROM triggers_trigger WHERE id = %(trigger)s::uuid AND {IF_AWAKE}
ON CONFLICT (trigger_id) DO UPDATE SET
  agent = excluded.agent,
  state = CASE WHEN gate.agent = excluded.agent THEN gate.state END,
  is_tainted = gate.is_tainted AND gate.agent = excluded.agent,
  revision = gate.revision + (gate.agent <> excluded.agent)::int,
  quiet = excluded.quiet + CASE WHEN gate.agent = excluded.agent THEN gate.quiet ELSE 0 END,
  fired = excluded.fired + CASE WHEN gate.agent = excluded.agent THEN gate.fired ELSE 0 END,
  failed = excluded.failed + CASE WHEN gate.agent = excluded.agent THEN gate.failed ELSE 0 END,
  in_a_row = CASE WHEN (gate.agent, gate.last_answer) = (excluded.agent, excluded.last_answer) THEN gate.in_a_row + 1 ELSE 1 END,
  last_answer = excluded.last_answer, last_reason = excluded.last_reason, last_at = excluded.last_at
"""  # noqa: S608  (our own parts)
# An event that joined a run, was collected or resumed has a decision that names the run, which is gone now.
QUIET = """
INSERT INTO triggers_decision (event_id, trigger_id, replay_id, outcome, reason)
SELECT event.id, trigger.id, %(replay)s::uuid, 'quiet', %(reason)s::text
FROM triggers_event event CROSS JOIN triggers_trigger trigger
WHERE event.id = ANY(%(events)s::uuid[]) AND trigger.id = %(trigger)s::uuid
ON CONFLICT (event_id, trigger_id, replay_id) DO UPDATE
  SET outcome = excluded.outcome, reason = excluded.reason, run_id = NULL, created_at = excluded.created_at
"""
# A gate that answers again is not broken. Its run is deleted without a record, so the row of failures and the incident
# would stay until another run succeeds. On the same grid as the ends of runs, so that it comes behind those before it.
RECOVERED = """
INSERT INTO runs_outboxmessage (topic, key, payload, attempts, last_error, available_at)
SELECT 'run.finished', %(run)s::text, jsonb_build_object('run', %(run)s::text, 'agent', agent, 'trigger', trigger_id::text,
  'status', 'succeeded', 'error', ''), 0, '', date_bin('500 ms', clock_timestamp(), 'epoch') + interval '500 ms'
FROM triggers_gate WHERE trigger_id = %(trigger)s::uuid AND agent = %(agent)s::text AND last_answer = 'failed' FOR UPDATE
"""
KEEP = f"""
UPDATE triggers_gate SET state = %s::jsonb, is_tainted = %s::boolean, revision = revision + 1
WHERE trigger_id = %s::uuid AND agent = %s::text AND revision = %s::bigint AND {IF_AWAKE}
"""  # noqa: S608  (our own parts)


def last(asked: GateSubject) -> Last:
    gate = Gate.objects.filter(trigger_id=asked.trigger_id, agent=asked.agent).first()
    if gate is None:
        return Last(revision=_revision(asked.trigger_id))
    return Last(state=gate.state, is_tainted=gate.is_tainted, revision=gate.revision)


def quiet(asked: GateSubject, reason: str) -> None:
    if execute(RECOVERED, {"run": asked.run_id, "trigger": asked.trigger_id, "agent": asked.agent}):
        nudge_later()
    _count(asked, Gate.Answer.QUIET, reason)
    names = {"trigger": asked.trigger_id, "replay": asked.replay_id, "events": list(asked.event_ids), "reason": reason}
    execute(QUIET, names)


def fired(asked: GateSubject, reason: str) -> None:
    _count(asked, Gate.Answer.FIRED, reason)


def failed(asked: GateSubject, error: str) -> None:
    _count(asked, Gate.Answer.FAILED, error)


def keep(trigger_id: UUID, agent: str, new: Last) -> bool:
    return execute(KEEP, [Jsonb(new.state), new.is_tainted, trigger_id, agent, new.revision]) == 1


def _count(asked: GateSubject, answer: Gate.Answer, reason: str) -> None:
    names = {"trigger": asked.trigger_id, "agent": asked.agent, "answer": answer, "reason": reason[:REASON_LENGTH]}
    execute(COUNT, names)


def _revision(trigger_id: UUID) -> int:
    """The revision that a row gets when this agent's first answer is counted: a row of another agent's gate goes on counting."""
    rows = fetch("SELECT revision + 1 FROM triggers_gate WHERE trigger_id = %s::uuid", [trigger_id])
    return int(rows[0][0]) if rows else 0

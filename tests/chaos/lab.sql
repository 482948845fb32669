-- What must hold of the lab's own table (tests/userapps/lab), besides the promises that `manage.py verify` knows.

--- every success has one effect, and so has no other run
SELECT run.id AS run, run.agent, run.status, count(effect.id) AS effects
FROM runs_run run LEFT JOIN lab_effect effect ON effect.run = run.id
WHERE run.id >= %(first)s::uuid
GROUP BY run.id HAVING count(effect.id) <> (run.status = 'succeeded')::int;

--- an effect belongs to a run
SELECT effect.run, effect.agent FROM lab_effect effect
WHERE effect.run >= %(first)s::uuid AND NOT EXISTS (SELECT FROM runs_run WHERE runs_run.id = effect.run);

--- an event has one effect per trigger
SELECT event, trigger, count(*) AS effects FROM lab_effect WHERE run >= %(first)s::uuid GROUP BY event, trigger HAVING count(*) > 1;

--- what can only fail has no effect
SELECT run, agent FROM lab_effect WHERE run >= %(first)s::uuid AND agent IN ('doomed', 'late', 'stubborn');

--- effects of a key do not overlap
SELECT key, run, began_at, ended_before FROM (
  SELECT trigger, key, run, began_at, lag(ended_at) OVER (PARTITION BY trigger, key ORDER BY began_at) AS ended_before
  FROM lab_effect WHERE run >= %(first)s::uuid AND agent IN ('ordered', 'single', 'joining', 'replacing')) effects
WHERE began_at < ended_before;

--- a run has all the events it took along
SELECT effect.run, effect.agent, effect.events, cardinality(run.event_ids) AS event_ids
FROM lab_effect effect JOIN runs_run run ON run.id = effect.run
WHERE run.id >= %(first)s::uuid AND effect.events <> cardinality(run.event_ids);

--- a narrow queue has one run at a time
SELECT run, started_at, ended_before FROM (
  SELECT run_id AS run, attempt.started_at, lag(attempt.ended_at) OVER (ORDER BY attempt.started_at) AS ended_before
  FROM runs_attempt attempt JOIN runs_run ON runs_run.id = attempt.run_id
  WHERE run_id >= %(first)s::uuid AND queue = 'narrow') claims
WHERE started_at < ended_before;

--- drained: the latest of those that replace each other succeeded
SELECT DISTINCT ON (key) key, id AS run, status, status_reason FROM runs_run
WHERE id >= %(first)s::uuid AND agent = 'replacing' AND status <> 'succeeded'
  AND NOT EXISTS (SELECT FROM runs_run later WHERE later.key = runs_run.key AND later.seq > runs_run.seq);

--- drained: what was held has run
SELECT decision.event_id AS event, trigger.slug FROM triggers_decision decision
JOIN triggers_trigger trigger ON trigger.id = decision.trigger_id
WHERE decision.outcome = 'held' AND trigger.paused_at IS NULL;

--- effects of a key come in the sender's order
SELECT key, run, number, number_before FROM (
  SELECT key, run, number, lag(number) OVER (PARTITION BY key ORDER BY began_at) AS number_before
  FROM lab_effect WHERE run >= %(first)s::uuid AND agent = 'ordered') effects
WHERE number < number_before;

--- drained: what a run emitted is there
SELECT effect.run, effect.agent, effect.emitted, count(event.id) AS events
FROM lab_effect effect LEFT JOIN triggers_event event ON event.cause_run_id = effect.run
WHERE effect.run >= %(first)s::uuid
GROUP BY effect.id HAVING count(event.id) <> effect.emitted;

--- drained: every tick came, once
SELECT task.name, (extract(epoch FROM task.expires - schedule.anchor_at))::int - 1 AS ticks, count(event.id) AS events
FROM triggers_schedule schedule JOIN django_celery_beat_periodictask task ON task.id = schedule.task_id
LEFT JOIN triggers_event event ON event.ce_source = task.name AND event.type = 'schedule.fired'
WHERE schedule.trigger_id IS NOT NULL AND task.name LIKE 'tick-%'
GROUP BY task.name, task.expires, schedule.anchor_at
HAVING count(event.id) <> (extract(epoch FROM task.expires - schedule.anchor_at))::int - 1;

-- What must hold of the lab's own tables (tests/userapps/lab), besides the promises that `manage.py verify` knows.

--- every success has one effect, and so has no other run
SELECT run.id AS run, run.agent, run.status, count(effect.id) AS effects
FROM runs_run run LEFT JOIN lab_effect effect ON effect.run = run.id
WHERE run.id >= %(first)s::uuid AND NOT coalesce((run.policy ->> 'durable')::boolean, false)
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
FROM lab_effect effect LEFT JOIN triggers_event event ON event.cause_run_id = effect.run AND event.type <> 'run.finished'
WHERE effect.run >= %(first)s::uuid
GROUP BY effect.id HAVING count(event.id) <> effect.emitted;

--- drained: every tick came, once
SELECT task.name, (extract(epoch FROM task.expires - schedule.anchor_at))::int - 1 AS ticks, count(event.id) AS events
FROM triggers_schedule schedule JOIN django_celery_beat_periodictask task ON task.id = schedule.task_id
LEFT JOIN triggers_event event ON event.ce_source = task.name AND event.type = 'schedule.fired'
WHERE schedule.trigger_id IS NOT NULL AND task.name LIKE 'tick-%'
GROUP BY task.name, task.expires, schedule.anchor_at
HAVING count(event.id) <> (extract(epoch FROM task.expires - schedule.anchor_at))::int - 1;

-- Of durable agents. What a fork begins with was done, called and approved by the run it was forked from.

--- a transactional step is done once, and nothing is done without its step
SELECT coalesce(step.run_id, deed.run) AS run, coalesce(step.key, deed.step) AS step, count(step.key) AS steps, count(deed.id) AS deeds
FROM (SELECT run_id, runs_step.key, forked_from_id FROM runs_step JOIN runs_run ON runs_run.id = run_id
      WHERE run_id >= %(first)s::uuid AND agent IN ('stepping', 'wavering', 'patient', 'asking', 'family', 'sprout')
        AND effect = 'transactional' AND runs_step.status = 'done' AND runs_step.key NOT LIKE 'emit %%' AND runs_step.key NOT LIKE 'spawn %%') step
FULL JOIN (SELECT * FROM lab_deed WHERE run >= %(first)s::uuid) deed ON deed.run = step.run_id AND deed.step = step.key
GROUP BY 1, 2 HAVING count(deed.id) > 1 OR count(step.key) = 0 OR (count(deed.id) = 0 AND bool_and(step.forked_from_id IS NULL));

--- what may happen at most once was called at most once
SELECT run, step, count(*) AS calls FROM lab_call WHERE path = '/ring' AND run >= %(first)s::uuid GROUP BY run, step HAVING count(*) > 1;

--- what may happen at most once is written down before it is called
SELECT run, step FROM lab_call WHERE path = '/ring' AND run >= %(first)s::uuid
  AND NOT EXISTS (SELECT FROM runs_step WHERE run_id = lab_call.run AND key = lab_call.step);

--- what is repeated outside is repeated word for word
SELECT run, step, count(*) AS calls, count(DISTINCT said) AS different FROM lab_call
WHERE path = '/pay' AND run >= %(first)s::uuid GROUP BY run, step HAVING count(DISTINCT said) > 1;

--- what a journal records as called was called
SELECT step.run_id AS run, step.key, step.effect FROM runs_step step JOIN runs_run ON runs_run.id = step.run_id
WHERE step.run_id >= %(first)s::uuid AND agent IN ('stepping', 'sprout') AND forked_from_id IS NULL
  AND step.status = 'done' AND step.effect IN ('read', 'idempotent', 'at_most_once')
  AND NOT EXISTS (SELECT FROM lab_call WHERE run = step.run_id AND lab_call.step = step.key);

--- an approval is used once, for what was decided, and only if it was granted
SELECT wait.run_id AS run, approval.id AS approval, approval.decision, count(deed.id) AS deeds
FROM runs_approval approval JOIN runs_wait wait ON wait.id = approval.wait_id JOIN runs_run ON runs_run.id = wait.run_id
LEFT JOIN lab_deed deed ON deed.approval = approval.id
WHERE wait.run_id >= %(first)s::uuid AND agent = 'asking'
GROUP BY wait.run_id, approval.id, runs_run.status
HAVING count(deed.id) > (approval.decision IN ('approve', 'edit'))::int
  OR bool_or(deed.arguments <> approval.decided_arguments)
  OR (runs_run.status = 'succeeded' AND approval.decision IN ('approve', 'edit') AND count(deed.id) = 0);

--- no wait timed out though what it waited for had come before
SELECT wait.run_id AS run, wait.key, event.id AS event FROM runs_wait wait
JOIN triggers_event event ON event.type = wait.event_type AND event.dispatched_at < wait.created_at
  AND event.data #> '{to,of}' = wait.match -> 'to.of'
WHERE wait.run_id >= %(first)s::uuid AND wait.status = 'expired' AND wait.event_type = 'lab.reply'
  AND NOT EXISTS (SELECT FROM runs_wait taken WHERE taken.run_id = wait.run_id AND taken.event_id = event.id);

--- a parent goes on when its children have ended, and knows how
SELECT parent.id AS run, parent.result, ended.statuses FROM runs_run parent JOIN runs_wait wait ON wait.run_id = parent.id AND wait.kind = 'children'
CROSS JOIN LATERAL (
  SELECT jsonb_agg(child.status ORDER BY place) AS statuses, max(child.finished_at) AS at
  FROM unnest(wait.children) WITH ORDINALITY AS awaited (id, place) LEFT JOIN runs_run child ON child.id = awaited.id) ended
WHERE parent.id >= %(first)s::uuid AND parent.agent = 'family' AND wait.status = 'done' AND parent.status = 'succeeded'
  AND (parent.result <> ended.statuses OR ended.at > wait.ended_at);

--- drained: what a step emitted is there, once
SELECT run.id AS run, run.agent, count(event.id) AS events FROM runs_run run LEFT JOIN triggers_event event ON event.cause_run_id = run.id AND event.type <> 'run.finished'
WHERE run.id >= %(first)s::uuid AND run.agent = 'stepping' AND run.status = 'succeeded' AND run.forked_from_id IS NULL
GROUP BY run.id HAVING count(event.id) <> 1;

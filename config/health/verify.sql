-- The promises, as statements that find what must not be there: after each line like those below, what must hold, and
-- the statement whose rows are violations. %(first)s is the least id of the events, and of their runs, that are looked at.

--- an event is recorded once
SELECT source_id, ce_source, ce_id, count(*) FROM triggers_event WHERE id >= %(first)s::uuid
GROUP BY source_id, ce_source, ce_id HAVING count(*) > 1;

--- an event has one run per trigger
SELECT event, trigger_id, replay_id, array_agg(runs_run.id) AS runs
FROM runs_run CROSS JOIN LATERAL unnest(event_ids) AS event
WHERE runs_run.id >= %(first)s::uuid AND trigger_id IS NOT NULL AND parent_id IS NULL AND forked_from_id IS NULL
GROUP BY event, trigger_id, replay_id HAVING count(*) > 1;

--- an emitted event comes from a run that succeeded, or from a step of one
SELECT event.id AS event, runs_run.id AS run, runs_run.status FROM triggers_event event
JOIN runs_run ON runs_run.id = event.cause_run_id
JOIN triggers_source source ON source.id = event.source_id AND source.slug = 'run'
WHERE event.id >= %(first)s::uuid AND event.cause_run_id IS NOT NULL AND event.type <> 'run.finished' AND runs_run.status <> 'succeeded'
  AND NOT EXISTS (SELECT FROM runs_step step WHERE step.run_id = runs_run.id AND step.status = 'done' AND step.effect <> 'value');

--- each event that joined a run is one of its events
SELECT decision.event_id AS event, decision.trigger_id AS trigger, decision.outcome, decision.run_id AS run
FROM triggers_decision decision LEFT JOIN runs_run ON runs_run.id = decision.run_id
WHERE decision.event_id >= %(first)s::uuid AND decision.outcome IN ('joined', 'collected')
  AND NOT decision.event_id = ANY (coalesce(runs_run.event_ids, '{}'))
  AND NOT (decision.outcome = 'collected' AND decision.run_id IS NULL AND EXISTS (
    SELECT FROM triggers_window open WHERE open.trigger_id = decision.trigger_id
      AND open.replay_id = decision.replay_id AND decision.event_id = ANY (open.event_ids)));

--- an event that was held and resumed has its run
SELECT decision.event_id AS event, decision.trigger_id AS trigger, decision.run_id AS run FROM triggers_decision decision
WHERE decision.event_id >= %(first)s::uuid AND decision.outcome = 'resumed'
  AND NOT EXISTS (SELECT FROM runs_run WHERE runs_run.id = decision.run_id);

--- a success is in the ledger, for each of its events
SELECT runs_run.id AS run, event FROM runs_run CROSS JOIN LATERAL unnest(event_ids) AS event
WHERE runs_run.id >= %(first)s::uuid AND status = 'succeeded' AND trigger <> '' AND NOT EXISTS (
  SELECT FROM runs_processedevent ledger WHERE ledger.event_id = event AND ledger.consumer = runs_run.trigger
    AND ledger.replay_id = runs_run.replay_id AND ledger.run_id = runs_run.id);

--- the ledger names only successes
SELECT ledger.event_id AS event, ledger.consumer, runs_run.id AS run, runs_run.status
FROM runs_processedevent ledger JOIN runs_run ON runs_run.id = ledger.run_id
WHERE runs_run.id >= %(first)s::uuid AND (runs_run.status <> 'succeeded' OR NOT ledger.event_id = ANY (runs_run.event_ids));

--- a success is one attempt's, the last
SELECT runs_run.id AS run, runs_run.status, runs_run.epoch,
       array_agg(attempt.epoch ORDER BY attempt.epoch) FILTER (WHERE attempt.outcome = 'succeeded') AS succeeded
FROM runs_run LEFT JOIN runs_attempt attempt ON attempt.run_id = runs_run.id WHERE runs_run.id >= %(first)s::uuid
GROUP BY runs_run.id
HAVING count(*) FILTER (WHERE attempt.outcome = 'succeeded') <> (runs_run.status = 'succeeded')::int
    OR (runs_run.status = 'succeeded' AND max(attempt.epoch) FILTER (WHERE attempt.outcome = 'succeeded') <> runs_run.epoch)
    OR max(attempt.epoch) > runs_run.epoch;

--- a running claim has not ended
SELECT runs_run.id AS run, runs_run.epoch, attempt.outcome FROM runs_run
JOIN runs_attempt attempt ON attempt.run_id = runs_run.id AND attempt.epoch = runs_run.epoch
WHERE runs_run.id >= %(first)s::uuid AND runs_run.status = 'running';

-- With progress a durable run's attempts restart, and a step that is tried again gives its run's attempt back.

--- every claim ended in one attempt, and counts as one
WITH numbered AS (
          SELECT attempt.run_id, attempt.epoch, attempt.number, attempt.outcome,
                 lag(attempt.number) OVER claims AS number_before, lag(attempt.outcome) OVER claims AS outcome_before
          FROM runs_attempt attempt JOIN runs_run ON runs_run.id = attempt.run_id WHERE runs_run.id >= %(first)s::uuid
          WINDOW claims AS (PARTITION BY attempt.run_id ORDER BY attempt.epoch)
        )
        SELECT run_id AS run, numbered.epoch, number, number_before, outcome_before FROM numbered JOIN runs_run ON runs_run.id = run_id
        WHERE number <> coalesce(number_before + (outcome_before <> 'released')::int, 1) AND NOT (number = 1 AND 
EXISTS (SELECT FROM runs_auditentry entry
        WHERE entry.kind = 'run' AND entry.object_id = runs_run.id::text AND entry.action = 'requeue')
) AND NOT ((number <= 1 OR number = number_before) AND (
          EXISTS (SELECT FROM runs_step step WHERE step.run_id = runs_run.id)
          OR EXISTS (SELECT FROM runs_wait wait WHERE wait.run_id = runs_run.id)));

--- a run's attempts are counted right
WITH counted AS (
          SELECT runs_run.id, status, attempt, policy,
                 EXISTS (SELECT FROM runs_step step WHERE step.run_id = runs_run.id)
                 OR EXISTS (SELECT FROM runs_wait wait WHERE wait.run_id = runs_run.id) AS has_journal,
EXISTS (SELECT FROM runs_auditentry entry
        WHERE entry.kind = 'run' AND entry.object_id = runs_run.id::text AND entry.action = 'requeue')
 AS was_requeued,
                 coalesce(last.number - (last.outcome = 'released')::int, 0) + (status = 'running')::int AS should_be
          FROM runs_run LEFT JOIN LATERAL (
            SELECT number, outcome FROM runs_attempt WHERE run_id = runs_run.id ORDER BY epoch DESC LIMIT 1) last ON true
          WHERE runs_run.id >= %(first)s::uuid
        )
        SELECT id AS run, status, attempt, should_be, policy ->> 'retries' AS retries FROM counted
        WHERE (attempt <> should_be AND NOT (was_requeued AND attempt <= 1)
               AND NOT (has_journal AND (attempt <= 1 OR attempt = should_be - 1)))
           OR attempt > coalesce((policy ->> 'retries')::int, 3) + 1;

--- a run has one claim at a time
WITH spans AS (
  SELECT attempt.run_id, attempt.epoch, attempt.started_at, attempt.ended_at,
         lag(attempt.ended_at) OVER (PARTITION BY attempt.run_id ORDER BY attempt.epoch) AS ended_before
  FROM runs_attempt attempt JOIN runs_run ON runs_run.id = attempt.run_id WHERE runs_run.id >= %(first)s::uuid
)
SELECT run_id AS run, epoch, started_at, ended_before FROM spans WHERE started_at < ended_before OR ended_at < started_at;

--- a key has no more runs at once than its limit, and never had
WITH edges AS (
  SELECT key, key_limit, attempt.started_at AS at, 1 AS step
  FROM runs_run JOIN runs_attempt attempt ON attempt.run_id = runs_run.id WHERE runs_run.id >= %(first)s::uuid AND key IS NOT NULL
  UNION ALL
  SELECT key, key_limit, attempt.ended_at, -1
  FROM runs_run JOIN runs_attempt attempt ON attempt.run_id = runs_run.id WHERE runs_run.id >= %(first)s::uuid AND key IS NOT NULL
  UNION ALL
  SELECT key, key_limit, claimed_at, 1 FROM runs_run WHERE runs_run.id >= %(first)s::uuid AND key IS NOT NULL AND status = 'running'
), counted AS (
  SELECT key, at, max(key_limit) OVER (PARTITION BY key) AS key_limit,
         sum(step) OVER (PARTITION BY key ORDER BY at, step ROWS UNBOUNDED PRECEDING) AS live
  FROM edges
)
SELECT key, key_limit, max(live) AS live, min(at) AS at FROM counted WHERE live > key_limit GROUP BY key, key_limit;

--- a place of a key is held by one run, which lives
SELECT key, slot, array_agg(id) AS runs, array_agg(status) AS statuses FROM runs_run
WHERE runs_run.id >= %(first)s::uuid AND (slot IS NOT NULL OR (status = 'running' AND key IS NOT NULL))
GROUP BY key, slot
HAVING count(*) > 1 OR slot IS NULL OR bool_or(status IN ('succeeded', 'failed', 'cancelled'));

--- no run waits for a key that is free
SELECT blocked.key, blocked.id AS run, blocked.key_limit, held.places FROM (
  SELECT DISTINCT ON (key) id, key, key_limit FROM runs_run
  WHERE runs_run.id >= %(first)s::uuid AND status = 'queued' AND ready_at IS NULL AND due_at IS NULL AND slot IS NULL ORDER BY key, seq
) blocked CROSS JOIN LATERAL (
  SELECT count(*) AS places FROM runs_run WHERE runs_run.key = blocked.key AND slot IS NOT NULL) held
WHERE held.places < blocked.key_limit;

--- runs of a key start in the order they were dispatched
WITH claims AS (
          SELECT runs_run.id, key, seq, attempt.started_at
          FROM runs_run JOIN runs_attempt attempt ON attempt.run_id = runs_run.id
          WHERE runs_run.id >= %(first)s::uuid AND key IS NOT NULL AND key_limit = 1 AND policy ->> 'overlap' = 'queue' AND NOT 
EXISTS (SELECT FROM runs_auditentry entry
        WHERE entry.kind = 'run' AND entry.object_id = runs_run.id::text AND entry.action = 'requeue')

          UNION ALL
          SELECT id, key, seq, claimed_at FROM runs_run
          WHERE runs_run.id >= %(first)s::uuid AND key IS NOT NULL AND key_limit = 1 AND policy ->> 'overlap' = 'queue' AND status = 'running'
            AND NOT 
EXISTS (SELECT FROM runs_auditentry entry
        WHERE entry.kind = 'run' AND entry.object_id = runs_run.id::text AND entry.action = 'requeue')

        ), ordered AS (
          SELECT id, key, seq, started_at, lag(seq) OVER starts AS seq_before, lag(id) OVER starts AS before
          FROM claims WINDOW starts AS (PARTITION BY key ORDER BY started_at)
        )
        SELECT key, id AS run, seq, before AS started_before, seq_before, started_at FROM ordered WHERE seq_before > seq;

-- Durable runs: their journals, what they wait for, their children and forks.

--- an entry of a journal has a place of its own, and a claim that wrote it
SELECT entry.run_id AS run, entry.position, array_agg(entry.key) AS keys, max(entry.epoch) AS epoch, runs_run.epoch AS of_run
FROM (SELECT run_id, position, key, epoch FROM runs_step WHERE run_id >= %(first)s::uuid
      UNION ALL SELECT run_id, position, key, 0 FROM runs_wait WHERE run_id >= %(first)s::uuid) entry
JOIN runs_run ON runs_run.id = entry.run_id
GROUP BY entry.run_id, entry.position, runs_run.epoch HAVING count(*) > 1 OR max(entry.epoch) > runs_run.epoch;

--- a success has no step whose outcome is unknown
SELECT step.run_id AS run, step.key FROM runs_step step JOIN runs_run ON runs_run.id = step.run_id
WHERE step.run_id >= %(first)s::uuid AND step.status = 'started' AND runs_run.status = 'succeeded';

--- a step of at most one attempt was tried once
-- A failed request to a model may have been tried before: it is of at most one attempt since its answer was paid and lost.
SELECT run_id AS run, key, status, attempts FROM runs_step
WHERE run_id >= %(first)s::uuid AND effect = 'at_most_once' AND attempts > 1 AND NOT (kind = 'model' AND status = 'failed');

--- an uncertain run has a reason
SELECT id AS run, agent FROM runs_run WHERE id >= %(first)s::uuid AND status = 'uncertain' AND status_reason = '';

--- a waiting run waits for one thing, and no other run for anything
SELECT coalesce(parked.id, wait.run_id) AS run, runs_run.status, count(wait.id) AS waits, array_agg(wait.key) AS keys
FROM (SELECT id FROM runs_run WHERE status = 'waiting' AND id >= %(first)s::uuid) parked
FULL JOIN (SELECT id, run_id, key FROM runs_wait WHERE status = 'open' AND run_id >= %(first)s::uuid) wait ON wait.run_id = parked.id
JOIN runs_run ON runs_run.id = coalesce(parked.id, wait.run_id)
GROUP BY 1, 2 HAVING count(wait.id) <> 1 OR runs_run.status <> 'waiting';

--- the event that a run waited for has come
SELECT wait.run_id AS run, wait.key, wait.status, wait.event_id AS event, event.type, wait.match FROM runs_wait wait
LEFT JOIN triggers_event event ON event.id = wait.event_id
WHERE wait.run_id >= %(first)s::uuid AND (
  (wait.status = 'done' AND wait.kind = 'event') <> (wait.event_id IS NOT NULL)
  OR wait.status = 'done' AND wait.kind = 'time' AND wait.ended_at < wait.due_at
  OR event.type <> wait.event_type
  OR event.payload_removed_at IS NULL AND event.id IS NOT NULL AND EXISTS (
    SELECT FROM jsonb_each(wait.match) wanted (path, value)
    WHERE event.data #> string_to_array(wanted.path, '.') IS DISTINCT FROM wanted.value));

--- no two waits of a run take the same event
SELECT run_id AS run, event_id AS event, array_agg(key) AS waits FROM runs_wait
WHERE run_id >= %(first)s::uuid AND event_id IS NOT NULL GROUP BY run_id, event_id HAVING count(*) > 1;

--- a signal reaches the run it was meant for
SELECT wait.run_id AS run, wait.key, event.id AS event, event.subject FROM runs_wait wait
JOIN triggers_event event ON event.id = wait.event_id JOIN runs_run ON runs_run.id = wait.run_id
WHERE wait.run_id >= %(first)s::uuid AND event.type = 'run.signal' AND event.payload_removed_at IS NULL
  AND event.subject <> runs_run.id::text AND runs_run.forked_from_id IS NULL;

--- an approval is decided exactly where a run went on by it
SELECT wait.run_id AS run, wait.key, wait.kind, wait.status, approval.decision, approval.decided_by FROM runs_wait wait
LEFT JOIN runs_approval approval ON approval.wait_id = wait.id
WHERE wait.run_id >= %(first)s::uuid AND (
  (wait.kind = 'approval') <> (approval.id IS NOT NULL)
  OR wait.kind = 'approval' AND (approval.decision <> '') <> (wait.status = 'done'));

--- the events, children and origin of a live run are kept
SELECT runs_run.id AS run, 'event' AS gone, event_id AS id FROM runs_run JOIN runs_wait wait ON wait.run_id = runs_run.id
LEFT JOIN triggers_event event ON event.id = wait.event_id
WHERE runs_run.id >= %(first)s::uuid AND runs_run.status IN ('queued', 'running', 'waiting', 'uncertain')
  AND wait.event_id IS NOT NULL AND (event.id IS NULL OR event.payload_removed_at IS NOT NULL)
UNION ALL
SELECT runs_run.id, 'child', child FROM runs_run JOIN runs_wait wait ON wait.run_id = runs_run.id, unnest(wait.children) child
WHERE runs_run.id >= %(first)s::uuid AND runs_run.status IN ('queued', 'running', 'waiting', 'uncertain')
  AND NOT EXISTS (SELECT FROM runs_run there WHERE there.id = child AND there.payload_removed_at IS NULL)
UNION ALL
SELECT id, 'origin', forked_from_id FROM runs_run
WHERE id >= %(first)s::uuid AND forked_from_id IS NOT NULL AND status IN ('queued', 'running', 'waiting', 'uncertain')
  AND NOT EXISTS (SELECT FROM runs_run there WHERE there.id = runs_run.forked_from_id);

--- a child comes of what its parent has committed
SELECT child.id AS run, child.parent_id AS parent, parent.status FROM runs_run child JOIN runs_run parent ON parent.id = child.parent_id
WHERE child.id >= %(first)s::uuid AND (child.root_id <> parent.root_id OR child.event_ids <> '{}' OR (
  parent.status <> 'succeeded'
  AND NOT EXISTS (SELECT FROM runs_step step WHERE step.run_id = parent.id AND step.status = 'done' AND step.effect <> 'value')));

--- a run that was forked stays closed
SELECT origin.id AS run, origin.status, fork.id AS fork FROM runs_run fork JOIN runs_run origin ON origin.id = fork.forked_from_id
WHERE fork.id >= %(first)s::uuid AND origin.status IN ('queued', 'running', 'waiting', 'uncertain');

--- a fork is of the same events, under a replay of its own
SELECT fork.id AS run, origin.id AS origin FROM runs_run fork JOIN runs_run origin ON origin.id = fork.forked_from_id
WHERE fork.id >= %(first)s::uuid AND (fork.event_ids <> origin.event_ids OR fork.root_id <> origin.root_id OR fork.agent <> origin.agent
  OR fork.replay_id = origin.replay_id);

-- These hold once everything that was accepted has been worked off.

--- each absence has an event of its beginning, also while it lasts
SELECT closed.id AS event FROM triggers_event closed
JOIN triggers_source source ON source.id = closed.source_id AND source.kind IN ('absence', 'ping')
WHERE closed.id >= %(first)s::uuid AND closed.type = 'absence.closed' AND closed.data->>'opened' >= (%(first)s::uuid)::text
  AND NOT EXISTS (
    SELECT FROM triggers_event opened WHERE opened.source_id = closed.source_id AND opened.ce_source = closed.ce_source
      AND opened.ce_id = replace(closed.ce_id, ':closed', ':opened'))
UNION ALL
SELECT timer.opened_id FROM triggers_switchtimer timer
WHERE timer.state = 'open' AND timer.opened_id >= %(first)s::uuid
  AND NOT EXISTS (SELECT FROM triggers_event WHERE id = timer.opened_id);

--- drained: no event waits to be dispatched
SELECT id AS event, type, received_at FROM triggers_event WHERE dispatched_at IS NULL
UNION ALL SELECT event_id, 'redispatch', created_at FROM triggers_redispatch WHERE dispatched_at IS NULL;

--- drained: no window is open
SELECT trigger_id AS trigger, key, due_at, cardinality(event_ids) AS events FROM triggers_window;

--- drained: no run is unfinished
SELECT id AS run, agent, status, status_reason, ready_at, due_at, key, slot, attempt, epoch, worker_id AS worker, pid
FROM runs_run WHERE status IN ('queued', 'running');

--- drained: the outbox is empty
SELECT topic, key, available_at, attempts, last_error FROM runs_outboxmessage
WHERE topic <> 'wakeup' OR available_at <= clock_timestamp();

--- drained: an end that is to be reported as an event has one
SELECT run.id AS run, run.agent, run.status, run.epoch FROM runs_run run
WHERE run.id >= %(first)s::uuid AND run.finished_at IS NOT NULL
  AND jsonb_path_exists(run.policy, '$.reports[*] ? (@.event == true && (@."on" == "end" || @."on" == $on))',
    jsonb_build_object('on', CASE WHEN run.status = 'succeeded' THEN 'success' ELSE 'failure' END))
  AND NOT EXISTS (
    SELECT FROM triggers_event event JOIN triggers_source source ON source.id = event.source_id AND source.slug = 'run'
    WHERE event.ce_source = 'agents/' || run.agent AND event.ce_id = run.id || ':finished:' || run.epoch);

--- drained: no wait is overdue, and the dispatcher has looked for events before it
SELECT run_id AS run, key, due_at, looked_at FROM runs_wait
WHERE status = 'open' AND (due_at < clock_timestamp() - interval '10 s' OR looked_at IS NULL AND kind IN ('event', 'children'));

--- drained: no run waits for an event that has come
SELECT wait.run_id AS run, wait.key, event.id AS event FROM runs_wait wait JOIN runs_run ON runs_run.id = wait.run_id
LEFT JOIN triggers_event own ON own.id = runs_run.event_ids[1]
JOIN triggers_event event ON event.type = wait.event_type AND event.dispatched_at IS NOT NULL AND event.payload_removed_at IS NULL
  AND CASE WHEN wait.event_type = 'run.signal' THEN event.subject = runs_run.id::text
           WHEN own.id IS NULL THEN event.received_at > runs_run.created_at ELSE event.seq > own.seq END
WHERE wait.status = 'open' AND wait.kind = 'event' AND wait.run_id >= %(first)s::uuid
  AND NOT EXISTS (SELECT FROM runs_wait taken WHERE taken.run_id = wait.run_id AND taken.event_id = event.id)
  AND NOT EXISTS (
    SELECT FROM jsonb_each(wait.match) wanted (path, value)
    WHERE event.data #> string_to_array(wanted.path, '.') IS DISTINCT FROM wanted.value);

--- drained: no run waits for children that have all finished
SELECT wait.run_id AS run, wait.key, wait.children FROM runs_wait wait
WHERE wait.status = 'open' AND wait.kind = 'children' AND wait.run_id >= %(first)s::uuid AND NOT EXISTS (
  SELECT FROM runs_run child
  WHERE child.id = ANY (wait.children) AND child.status IN ('queued', 'running', 'waiting', 'uncertain'));

--- drained: no child outlives a parent that was cancelled, unless a fork of that lives
SELECT child.id AS run, child.status, parent.id AS parent FROM runs_run child JOIN runs_run parent ON parent.id = child.parent_id
WHERE child.id >= %(first)s::uuid AND child.status IN ('queued', 'running', 'waiting', 'uncertain') AND parent.status = 'cancelled'
  AND NOT EXISTS (
    WITH RECURSIVE fork (id, status) AS (
      SELECT id, status FROM runs_run WHERE forked_from_id = parent.id
      UNION ALL SELECT next.id, next.status FROM runs_run next JOIN fork ON next.forked_from_id = fork.id)
    SELECT FROM fork WHERE status IN ('queued', 'running', 'waiting', 'uncertain'));

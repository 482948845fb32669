"""One durable execution, whatever started it. The life of a run, in reading order:

- `states`, `enqueue`, `keys`: a run enters the queue, behind its concurrency key
- `claim`: a worker takes the next run; `worker` is its processes, `tasks` Celery's door
- `executor`, `body`, `attempt`, `durable`: the body runs, and its outcome is recorded
- `transitions`: how a run leaves a state, in one statement each
- `waits`, `outbox`: what runs wait for, what leaves; `chores` does what falls due
- `budgets`: what runs may cost; `notifications`: messages of agents to people, and their delivery
- `incidents`: repeated failures with one cause, reported once
- `processes`, `queues`, `network`: which processes are alive, doorbells, the broker
- `actions`, `api`, `shadow`, `retention`: what operators do to runs
- `ports`: what runs need from the rooms above; `db`, `models`: what all stands on
"""

"""Turn events into runs, or into decisions with a reason. In reading order:

- `loop`: the dispatcher process; `steps`: what its leader does besides dispatching events; `leadership` and `promise`: who reads, and
  when it looks
- `rules`: all triggers, subscriptions and switches, cached; `listeners`: match events against the last two
- `batch`: one transaction: `admission` (`rates`, `windows`), runs, `decisions`; `waiting_runs` finds runs that wait for its events
- `parts`, `shards`, `shard`: parts of a large batch that other processes dispatch at once
- `failures`, `order_of_keys`, `overtaking`: events that fail, the events behind them, and those that overtake
- `close_windows`, `replay_pieces`: what falls due without an event; `offers`: decisions that are dispatched again
- `hold`, `run_failures`, `gates`, `shadow`, `failing_triggers`, `spans`: pause and resume, and what others ask of dispatch;
  `unexplained` is for `verify`

`triggers.matching` finds the triggers of an event; `triggers.outbound` and `triggers.switches` take part in each batch.
"""

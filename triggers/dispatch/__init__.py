"""Event to run, or a decision with a reason. In reading order:

- `loop`: the dispatcher process; `leadership` and `lock` make it serial
- `pending`, `rules`, `index`, `match`: read events, and find the triggers that want them; `expressions` and `evaluator` filter
- `batch`: one transaction: `admission` (`flow_control`, `rates`, `windows`), runs, `decisions`; `awaited` wakes runs that wait
- `failures`, `behind`, `erring`: what becomes of events that fail, and of those behind them
- `hold`, `offers`, `replay`: pause, resume, and what is dispatched again; `close_windows`, `run_failures`, `shadow`
"""

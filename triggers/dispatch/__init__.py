"""Turn events into runs, or into decisions with a reason. In reading order:

- `loop`: the dispatcher process; `leadership` and `lock` make it serial
- `pending`, `rules`, `index`, `match`: read events and match them against triggers; `expressions` and `evaluator` filter;
  `costly` is matched beside the dispatcher
- `batch`: one transaction: `admission` (`flow_control`, `rates`, `windows`), runs, `decisions`; `awaited` finds waiting runs
- `others`: match events against subscriptions and switches
- `outbound`: events leave to subscriptions
- `absence`: switches record an event when another one is absent
- `failures`, `behind`, `erring`: events that fail, and the events behind them
- `tokens`, `faults`, `clauses`, `recent`, `seen`, `trial`: help people to write filters
- `hold`, `offers`, `replay`: pause, resume, and dispatch again; `close_windows`, `run_failures`, `gates`, `shadow`
"""

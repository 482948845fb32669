"""Caps on what runs use: tokens, money, requests and tool calls, of each run, or of an agent, a trigger or all runs in an hour,
day or month of UTC.

- `room`: is there room for a step in these windows? Pure.
- `windows`: the windows of a run's budgets, found, made and locked.
- `reserve`: the most that a step may cost is set aside before it, and settled with its entry.
- `wake`: runs that wait for budget go on; reservations of claims that are over count as spent.
- `caps`: what operators change. `declarations`: what the code and settings say.
- `spending`: what was spent, for pages and metrics.
"""

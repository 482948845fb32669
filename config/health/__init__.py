"""The state of the installation: `situation` reads it, `problems` describes it; `alarms`, `probes`, `metrics`, `doctor` and the console
show it.

`presence` keeps the row of the web process; `verify` checks the invariants of the whole database.
"""

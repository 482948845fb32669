"""One truth, told in five ways: `situation` reads it, `problems` words it; `alarms`, `probes`, `metrics`, `doctor` and the console tell it.

`presence` keeps the web process's own row; `verify` checks the invariants of the whole database.
"""

"""The state of the installation: `signs` finds the signs of trouble of all rooms (`runs.sign`) and reads them in one statement,
`situation` holds what they show and what pages show besides, and `problems` lists what is wrong; `alarms`, `probes`, `metrics`,
`doctor` and the console show it.

`presence` keeps the row of the web process; `verify` checks the invariants of the whole database.
"""

"""The journal of a durable body: each step is recorded once, and a replay of the body gets the recorded outputs.

`protocol` defines the requests of a body (a step, a wait, children, an approval, each at its place); `keys` names the places.
`engine` has the journal: upon its `commits`, the `replay` keeps the order of entries, `spending` waits for room in budgets, `steps`
decides on effects and failures, and the journal itself holds sessions. `begun` is a step that has begun; `concurrent` are steps on an
event loop, and `from_plain` those of a plain function; `ends` are the reasons why a body stops before its end. `entries` are the
values that the engine writes and reads through a `store`: `in_memory` for tests, `runs.durable` in the database, `runs.shadow` for
shadow runs. `canonical` hashes what a wait is bound to. All but `in_memory` work without Django.
"""

"""The journal of a durable body: what it does once is written down, and a replay of the body is given what is written.

`protocol` says what a body asks for (a step, a wait, children, an approval, each at its place) and `keys` names the places.
`engine` decides: replay, order, effects, failures, messages. `ends` are the reasons why a body goes no further for now;
`entries` are what the engine writes and reads, through a `store`: `memory` for tests, `runs.durable` in
the database, `runs.shadow` for shadow runs. `canonical` hashes what waits are bound to. All but `memory` work without Django.
"""

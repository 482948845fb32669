"""Replay recorded events: one (`replay`), or many at a rate: `preview`, `start`, `control` (pause, resume, cancel) and `progress`. The
dispatcher takes them a piece at a time (`triggers.dispatch.replay_pieces`).

1. A replay is a row. The dispatcher turns the next events of its search into redispatches, in the order of their ids, and moves the
   row's position in the same transaction, under the dispatch lock: a dispatcher that dies repeats or skips none.
2. The replay's id is the replay id of its redispatches, so that an event has at most one run of it per trigger.
3. A piece is a quarter of a second's events, at most PIECE. If the dispatcher was late by more than BURST, the rest of the delay is
   not made up for: the rate is never exceeded for longer.
4. Chosen triggers get only events of the source and types that they listen to. Filters, keys, limits and pauses apply as in any
   dispatch; runs have the replay's priority, except those of a debounce or a batch, which have their trigger's.
"""

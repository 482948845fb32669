"""Named sessions: a history of turns that runs share, across runs and agents.

- `names`, `limits`: what a session may be called, and how long it may be
- `size`: how many old turns must go; pure
- `messages`: which part of a call's messages its turn keeps, and a turn as text
- `history`: reads the history of a session, appends a turn, takes old turns out

A run holds a session while it takes a turn (`agents.journal.engine.Journal.hold`, `runs.durable.sessions`); `agents.llm.turn` is the
course of a turn. People edit sessions by the services of `runs.actions.sessions`.
"""

"""How a run leaves a state.

`outcome` says what becomes of a run, `leave` writes it: one statement, in which everything hangs on the fence. `entries` are the
rows of a journal that go with it, `lock` locks a run as everything does (key first).
"""

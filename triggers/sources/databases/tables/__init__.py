"""A table of Wakeful's own database, watched by triggers.

`watched_table` finds it and checks the settings, `capture` writes the functions that PostgreSQL calls, `keep` makes them, looks after them
and removes them, `sweep` looks for changes that they have missed.
"""

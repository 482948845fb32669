"""Upcoming wakes: `listing` (all of them), `run_wakes` (wakes, windows, timers), `meetings` (starts of calendars), as an
`entry` each; `days` counts by day.
"""

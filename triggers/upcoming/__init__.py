"""Upcoming wakes: `listing` (all of them), `run_wakes` (wakes, windows, timers), as an `entry` each; `days` counts by
day.
"""

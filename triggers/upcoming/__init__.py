"""What wakes next: `listing` (all of it), `run_wakes` (wakes, windows, timers), as an `entry` each; `days` counts by day."""

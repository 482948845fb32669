"""What wakes next: `by_clock` (schedules), `of_runs` (wakes, windows, timers), as an `entry` each; `days` counts by day."""

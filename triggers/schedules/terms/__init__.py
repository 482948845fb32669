"""The terms of a schedule: `active_hours`, `excluded_days`, and the `policy` (catch-up, jitter, limits)."""

"""The terms of a schedule: `active_hours`, and the `policy` (catch-up, jitter, limits)."""

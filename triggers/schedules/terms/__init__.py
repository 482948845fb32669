"""The terms of a schedule: `active_hours`, the `open_times` that they and excluded days leave, and the `policy` (catch-up,
jitter, limits)."""

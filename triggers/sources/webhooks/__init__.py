"""Signed webhooks. `views` and `receive` take a delivery; each `scheme` proves its sender and names the event."""

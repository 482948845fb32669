"""Signed webhooks. `views` and `receive` process a delivery; each `scheme` authenticates its sender and names the event."""

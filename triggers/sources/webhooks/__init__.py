"""Signed webhooks. `views` and `receive` process a delivery; one of `schemes`, each a `scheme`, authenticates its sender and names the
event.
"""

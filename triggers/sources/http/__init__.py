"""Shared by all sources over HTTP: `answers` to senders, stored `headers`, the `payload`, and `timestamps`."""

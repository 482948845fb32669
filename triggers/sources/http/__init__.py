"""What every way in over HTTP shares: `answers` to senders, `headers` that are kept, the `payload`, and `timestamps`."""

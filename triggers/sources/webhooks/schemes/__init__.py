"""The schemes by which senders sign webhooks: one file each, found by name."""

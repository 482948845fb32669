"""Events that leave: `subscriptions` with their `form`, and `deliveries`, what became of each event there."""

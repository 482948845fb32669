"""Runs in the console: `list`, `page` with waterfall, journal and causal tree, inboxes of approvals and uncertain runs, shadow runs."""

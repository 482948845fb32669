"""Notifications in the console: `list`, `deliveries`, `recipients` with their `recipient_form` and `history`, `groups`, and the
`inbox` of the user."""

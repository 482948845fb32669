"""Triggers in the console: `list`, `page`, `buttons` with their `dialogs`, `form_pages` with the `form` and the trials of a filter."""

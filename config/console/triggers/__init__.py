"""Triggers in the console: `page`, `form`, `dialogs`, `filters`, and the trial of a filter."""

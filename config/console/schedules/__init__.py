"""Schedules in the console: `list`, `page`, `form` and its `preview`, `buttons`, `why`, `recent_fires`, `calendars`, `backfills`."""

"""When triggers fire by the clock, and what became of each nominal time. In reading order:

- `clock`: zones and wall-clock times; `rules`: crontab, interval, once, sun; `terms`: active hours, catch-up; `excluded_days`
- `plan`: which nominal times fire; `accounting`: why the others did not; `definition`: what decides it, now or before an edit
- `preview`: what will fire
- `edit`, `rows`, `calendars`, `heartbeats`, `reminders`, `agent_schedules`, `periodic_tasks`, `static_entries`,
  `own_tasks`: the kinds, and their edits
- `firing`: what is due becomes events, exactly once
- `backfill`: fire a past range; `explain`: why a time fired or did not
"""

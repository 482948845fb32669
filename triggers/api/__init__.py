"""The HTTP API of triggers, events, sources, schedules, calendars, backfills and reminders: one file for each resource.

`routes` has their addresses. `tokens` makes and revokes API tokens, `authentication` reads them and checks permissions;
`events_json`, `schedules_json` and `fields` define the JSON.
"""

"""Calendars that are polled: events of theirs that are made, changed or cancelled, and those that are about to start. A file for each
kind of calendar; `reader` compares what it gives with what is recorded."""

TOPIC = "calendar"  # of the outbox: starts that wait

"""Switches: sources that record an event when another one is absent. In reading order:

- `switch`: a switch as the dispatcher knows it; `switches` reads and indexes all of them
- `sight`: the switches that see an event; `triggers.dispatch.listeners` matches them
- `timer`: pure: the clock of one key of a switch, and what an event does to it
- `note`: move the timers of a batch, in the transaction that dispatches its events; `rows` reads and writes timers
- `arm`: new, edited, paused and resumed switches
- `fire`: open the timers that are due, if dispatch has passed their due time: `backlog`

`triggers.sources.switches` has their kinds and settings, and the HTTP of pings.
"""

"""The dispatcher's work for runs. `timers` reads what is due, in one look; `chores` lists what is done about it, in its order."""

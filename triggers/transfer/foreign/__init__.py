"""Jobs of other programs become schedules and sources: `read` makes a file into `Brought`, by `crontab`, `beat` or `healthchecks`, whose
entries are those of a transfer file; `bring` imports them, all or nothing, as `triggers.transfer.carry_out` does with a file of ours.
"""

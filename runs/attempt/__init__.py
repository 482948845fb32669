"""An attempt to run a body: its gate, its deadline, its effects and its failure.

`gate` decides whether the run begins, `checklist_items` holds the items that it checks, `deadline` interrupts the body,
`effects` validates and writes emissions, wakes and notices, `children` spawns runs, `failure` decides on a retry,
`commit` commits a success and claims the next run with it, `clean_session` cleans the database session for the next run, `ownership`
opens the session of a claim, `hooks` runs what the body left for after its commit.
"""

"""An attempt to run a body: its deadline, its effects and its failure.

`deadline` interrupts the body, `effects` validates and writes emissions, wakes and notices, `children` spawns runs, `failure`
decides on a retry, `clean_session` cleans the database session for the next run.
"""

"""While a body runs: its deadline, what it leaves behind, and what its failure means.

`deadline` interrupts it, `effects` validates and writes emissions, wakes and notices, `children` spawns runs, `failure` decides on a
retry, `clean_session` cleans the database session for the next run.
"""

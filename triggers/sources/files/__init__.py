"""Kinds of sources that watch files: `directory`, and `object_store` for buckets.

A scan compares them with the ledger, the table of files as they were recorded (`ledger`), and is the truth. What differs is a
candidate (`candidates`): it is judged once it is settled, and its event is recorded in the commit that changes the ledger. Of a
directory, `directory_reader` makes the batches: `watched_directory` opens it, `scan` finds candidates and `judge` judges them, both
into the `findings` of a batch. `hints` of the operating system make a candidate of a file at once, without a scan; `tree` walks
directories, and `selection` decides which files count.
"""

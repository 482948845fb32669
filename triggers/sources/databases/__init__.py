"""Sources that turn changes of tables into events: `db.<schema>.<table>.<operation>`, with `pk`, `old`, `new` and `changed`.

`table` watches a table of Wakeful's own database, by triggers: see `tables`.

`slot` reads databases that we do not own, by logical replication. `slot_reader` makes the batches, unless there is a `slot_refusal`:
`wire` speaks the protocol, `pgoutput` decodes its messages, `slot_log` follows them through transactions, `changes` makes events of them
and `values` JSON of their columns; `place` and `proof` compare the log with what is recorded; `snapshot` reads the rows that are there
at the beginning. `server` asks the database, `publish` makes and drops slots, and `watch` measures them."""

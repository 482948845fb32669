"""SQL that permits retention and erasure to remove immutable rows."""

REMOVING = "set_config('wakeful.removing', 'on', true)"  # for the transaction

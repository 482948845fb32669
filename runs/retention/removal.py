"""SQL by which retention and erasure tell the database that they may remove immutable rows."""

REMOVING = "set_config('wakeful.removing', 'on', true)"  # for the transaction

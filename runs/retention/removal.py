"""How retention and erasure tell the database that they may take away what is immutable to everybody else."""

REMOVING = "set_config('wakeful.removing', 'on', true)"  # for the transaction

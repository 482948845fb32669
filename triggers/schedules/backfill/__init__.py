"""Fire the nominal times of a past range: `start`, `advance` a batch at a time, `ticks` (which times), `outcomes` of their runs."""

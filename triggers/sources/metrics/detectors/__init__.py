"""The detectors: one file each, found by its location here."""

"""Triggers that agents declare in code become rows: `wanted`, `sync`, and `overrides` that the operator owns."""

"""Accounts, tokens, the audit log, and the password check before dangerous actions."""

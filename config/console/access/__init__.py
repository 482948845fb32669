"""Accounts, tokens, the audit log, and the password again before what does the most harm."""

"""Texts that strangers may have written: `fences` marks them in a prompt, `addresses` finds where they may lead a call."""

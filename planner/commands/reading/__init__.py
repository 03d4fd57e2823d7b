"""Reads commands that somebody already has: words to settings, for each engine after its own syntax."""

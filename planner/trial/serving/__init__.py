"""Serving engines in a trial, as the parent knows them: what they are started with, and what their logs say."""

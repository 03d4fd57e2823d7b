"""The report as one page to pass on: what stands on it, and how it is drawn."""

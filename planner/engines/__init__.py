"""One profile per serving engine: how it budgets memory, lays out caches and shards weights."""

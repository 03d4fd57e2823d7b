"""One module per kind of model: how its config.json spells the structure, and what its code assumes."""

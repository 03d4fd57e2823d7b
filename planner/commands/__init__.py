"""The command that starts a plan, for each engine after its own syntax."""

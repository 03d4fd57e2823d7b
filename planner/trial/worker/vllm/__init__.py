"""vLLM's child of a trial: the engine in one process, run with and without the draft."""

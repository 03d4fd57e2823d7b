"""What a model is: its configuration, weights, caches and where they were read. No GPU, no planner."""

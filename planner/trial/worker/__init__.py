"""The child of a trial. Only here are torch, transformers and accelerate imported."""

"""A stand-in NVIDIA library for tests: see ``build`` and ``scenarios``."""

"""What fits, on which device, and how sure we are."""

__version__ = "0.1.0"

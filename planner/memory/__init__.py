"""The memory sum: line items and the pure functions that produce them."""

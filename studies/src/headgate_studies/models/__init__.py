"""Slow, exhaustive or bounding counterparts of the product's engines, which studies and tests compare them with."""

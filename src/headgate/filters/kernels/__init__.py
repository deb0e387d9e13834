"""Vectorised operations of the filter language, with Spark's answers and errors as NULL. No Python loop over rows."""

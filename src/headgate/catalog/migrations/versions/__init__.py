"""One module a schema change, in order. A released one is never edited; a change is a new module."""

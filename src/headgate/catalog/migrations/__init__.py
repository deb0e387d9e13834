"""Alembic's script directory of the catalog, shipped in the package and run by `database.open_database`."""

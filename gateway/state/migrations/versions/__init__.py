"""The migrations, one file for each. Alembic finds a migration by its revision id, not by the name of the file."""

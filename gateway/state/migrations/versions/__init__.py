"""One file per step; Alembic finds them by their revision, not by their name."""

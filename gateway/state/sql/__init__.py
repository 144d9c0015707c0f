"""SQLite or PostgreSQL: connection and tables."""

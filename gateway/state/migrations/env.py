"""Alembic's entry point: migrates over the connection in the attributes of Alembic's configuration."""

from __future__ import annotations

from alembic import context

from gateway.state.sql.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,  # SQLite's DDL is transactional too; the caller commits
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()

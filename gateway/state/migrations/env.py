"""Alembic's entry: migrates on the connection that it is handed."""

from __future__ import annotations

from alembic import context

from gateway.state.sql.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,  # SQLite's DDL is transactional too, and the transaction is ours
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()

"""The append-only journal of each worker. The worker writes an attempt to the journal before it calls the backend."""

"""Process infrastructure: background tasks, deadlines, threads, garbage collection, codings."""

"""Parts for every process: background tasks, deadlines, threads, garbage collection, content codings."""

"""Process infrastructure: owned tasks, deadlines, threads, garbage collection, codings."""

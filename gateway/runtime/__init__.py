"""What the process needs beside requests: owned tasks, deadlines, threads, garbage collection, codings."""

"""Lets identical requests in progress share one backend call: within a worker, on a host, and between hosts."""

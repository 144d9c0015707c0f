"""Response cache: exact and semantic, with coalescing of identical requests, separated by tenant."""

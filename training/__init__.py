"""Makes the packaged weights of the cache's verifier; not distributed. `docs/explanation/cache.md` has the commands."""

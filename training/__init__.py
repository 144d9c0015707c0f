"""Makes the packaged weights of the cache's verifier; not distributed. `docs/cache.md` has the commands."""

"""Makes the packaged weights of the cache's verifier; not distributed. docs/research/cache-figures.md says how."""

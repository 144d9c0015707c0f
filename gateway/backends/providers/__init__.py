"""One module per kind of backend, and what is known of hosted providers."""

"""One module per kind of backend, and the known facts about hosted providers."""

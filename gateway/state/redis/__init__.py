"""The Redis protocol: connections, clusters, the embedded server, the shared log."""

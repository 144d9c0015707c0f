"""Values and protocols that all packages share. Imports only `runtime`."""

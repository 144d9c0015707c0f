"""Values and protocols that all packages share. This package imports only `runtime`."""

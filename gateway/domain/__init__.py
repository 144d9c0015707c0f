"""Values and protocols that all packages share. Imports nothing but `runtime`."""

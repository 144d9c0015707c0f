"""What the gateway costs and what it survives, measured: `python -m loadtests`, `thriftgate loadtest`."""

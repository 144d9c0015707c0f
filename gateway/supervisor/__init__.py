"""The parent process: state server, local model, workers, and the one ledger writer of this host."""

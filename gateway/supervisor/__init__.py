"""The parent process: state server, local model, workers, ledger writer."""

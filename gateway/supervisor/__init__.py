"""The parent process. It starts and watches the state server, the local model, the workers and the ledger's writer."""

"""The append-only files of each worker. An attempt is written to them before its call begins."""

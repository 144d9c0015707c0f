"""Each worker's append-only files. An attempt is written to them before its call begins."""

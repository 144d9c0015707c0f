"""Wire formats: parses and writes the bytes of clients and backends. No I/O."""

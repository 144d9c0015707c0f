"""Wire ⇄ domain: what clients and backends say in bytes, and what it means here. Pure: values in, values out."""

"""Wire formats: parsing and writing of clients' and backends' bytes. Pure: values in, values out."""

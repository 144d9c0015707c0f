"""What happened: metrics, spans, access log and flight records, all after the answer."""

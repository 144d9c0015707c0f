"""Telemetry: metrics, spans, access log and flight records, all written after the answer."""

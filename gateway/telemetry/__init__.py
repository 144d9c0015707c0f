"""Telemetry: metrics, spans, access log and flight records. All are written after the answer."""

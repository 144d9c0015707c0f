"""Telemetry: metrics, spans, access log and flight records. They are written after a request's answer was sent."""

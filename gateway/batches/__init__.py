"""Batch API: files of requests, answered through the pipeline at low priority."""

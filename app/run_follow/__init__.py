"""Passes a run's metrics on: read as they are written (following), to other programs (sinks)."""

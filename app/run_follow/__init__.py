"""Forwards a run's metrics: reads them as they are written (following) and passes them to other programs (sinks)."""

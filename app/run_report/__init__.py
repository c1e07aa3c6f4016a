"""One HTML page about a run: read (reading), thinned (thinning), drawn (charts), written (page, writing)."""

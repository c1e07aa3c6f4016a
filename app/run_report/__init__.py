"""A run as one HTML page (charts, page) or as a picture: read (reading) and thinned (thinning)."""

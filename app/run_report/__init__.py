"""Renders runs as an HTML page (page, charts) or an image (picture). reading.py parses files,
and thinning.py drops points."""

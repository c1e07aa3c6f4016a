"""The terminal view of a run, from its files and the endpoints of its nodes."""

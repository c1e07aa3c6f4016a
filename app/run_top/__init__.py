"""The terminal view of a run: what its files and its nodes' endpoints say, as lines of text."""

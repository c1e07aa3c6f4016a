"""Code shared by programs that read a run's files: reading and replacing files, values, the parts of a step."""

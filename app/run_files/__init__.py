"""Code shared by programs that read a run's files: file access, JSON values and metric names."""

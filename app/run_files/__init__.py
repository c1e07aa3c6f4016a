"""What the programs share that read a run's files: values, replacing a file, the parts of a step."""

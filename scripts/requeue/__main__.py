"""Runs the program when Python is given this folder: python3 scripts/requeue EVENT ..."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python has put this folder on its path; the package is found from the folder that holds it.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from requeue.command import main

    sys.exit(main(sys.argv[1:]))

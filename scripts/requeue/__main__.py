"""Runs the program if Python is given this folder: python3 scripts/requeue EVENT ...; EVENT pod is for Kubernetes."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python has put this folder on its path; the package is found from the parent folder.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from requeue import command, starts

    words = sys.argv[1:]
    sys.exit(starts.main(words[1:]) if words[:1] == ["pod"] else command.main(words))

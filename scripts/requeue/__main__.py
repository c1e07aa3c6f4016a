"""Entry point of `python3 scripts/requeue EVENT ...`. The `pod` event is for Kubernetes."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python added this folder to its path, but the package is in the parent folder.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from requeue import command, starts

    words = sys.argv[1:]
    sys.exit(starts.main(words[1:]) if words[:1] == ["pod"] else command.main(words))

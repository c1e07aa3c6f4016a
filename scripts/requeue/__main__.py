"""Entry point of `python3 scripts/requeue EVENT ...`. The `pod` event is for Kubernetes."""

import signal
import sys
from pathlib import Path

START_SECONDS = 60  # timeout for the imports, if the file system of this checkout does not respond

if __name__ == "__main__":
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ignored by the job's shell
    signal.alarm(START_SECONDS)
    # Python added this folder to its path, but the package is in the parent folder.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from requeue import command, slurm, starts

    signal.alarm(slurm.FOLDER_SECONDS)
    words = sys.argv[1:]
    sys.exit(starts.main(words[1:]) if words[:1] == ["pod"] else command.main(words))

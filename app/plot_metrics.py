#!/usr/bin/env python3
"""plot_metrics.py RUN... FILE: an older name of report.py RUN... --png FILE."""

import sys

from report import main
from run_files.utf8 import restart_in_utf8

if __name__ == "__main__":
    restart_in_utf8()
    sys.exit(main(picture_is_last=True))

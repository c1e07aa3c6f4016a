"""Uses UTF-8 for names and text in any locale."""

from __future__ import annotations

import os
import sys


def restart_in_utf8() -> None:
    """Restarts this program if Python decoded its arguments with another encoding, such as ASCII."""
    if sys.getfilesystemencoding() != "utf-8":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])

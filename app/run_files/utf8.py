"""Names and texts are UTF-8, whatever the locale is."""

from __future__ import annotations

import os
import sys


def restart_in_utf8() -> None:
    """Starts this program over where Python has read its arguments by another encoding, such as ASCII."""
    if sys.getfilesystemencoding() != "utf-8":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])

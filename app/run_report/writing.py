"""Writes a file so that its readers see the old or the new one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from run_report.reading import ReportError


def replace_text(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error.strerror}; choose another place with --output.") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)

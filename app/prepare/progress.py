"""Shows progress: a bar on a terminal, periodic lines in a log."""

from __future__ import annotations

import sys
import time

SECONDS_BETWEEN_LINES = 10


class Progress:
    """`total` and `done` are in bytes, or in rows if the size in bytes is unknown. total: None if unknown."""

    def __init__(self, title: str, total: int | None):
        self._title, self._total, self._done = title, total, 0
        self._start = self._last = time.monotonic()
        self._bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=total, desc=title, unit="B", unit_scale=True, dynamic_ncols=True, leave=False)

    def update(self, done: int, tokens: int) -> None:
        rate = tokens / max(time.monotonic() - self._start, 1e-9)
        note = f"{tokens:,} tokens, {rate / 1e6:.2f} M tokens/s"
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(done - self._done)
        elif time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            share = f"{100 * done / self._total:.0f}%, " if self._total else ""
            print(f"{self._title}: {share}{note}", file=sys.stderr, flush=True)
        self._done = done

    def close(self) -> float:
        """Removes the bar. Returns the elapsed time in seconds."""
        if self._bar is not None:
            self._bar.close()
        return time.monotonic() - self._start

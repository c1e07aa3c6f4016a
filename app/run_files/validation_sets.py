"""The losses of validation sets, as the metrics file has them."""

from __future__ import annotations

import re
from collections.abc import Iterable

UNNAMED = "validation_loss"  # of --validation_data FILE; of NAME=FILE it is validation_NAME_loss


def validation_losses(keys: Iterable[str]) -> dict[str, str]:
    """The keys that are such losses, in their order, each with its label: "validation", or "validation NAME"."""
    labels = {}
    for key in keys:
        if key == UNNAMED:
            labels[key] = "validation"
        elif found := re.fullmatch(r"validation_(.+)_loss", key):
            labels[key] = f"validation {found.group(1)}"
    return labels

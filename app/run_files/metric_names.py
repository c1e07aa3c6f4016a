"""The names of metrics: the parts of a step on rank 0, and the losses of validation sets."""

from __future__ import annotations

import re
from collections.abc import Iterable

STEP_PARTS = {  # from below, where they are stacked
    "forward_seconds": "forward",
    "backward_seconds": "backward",
    "optimizer_seconds": "optimizer",
    "exposed_communication_seconds": "communication exposed",
    "data_seconds": "data",
}
UNNAMED = "validation_loss"  # of --validation_data FILE, or the mean of several, each of which has validation_NAME_loss


def validation_losses(keys: Iterable[str]) -> dict[str, str]:
    """The keys that are such losses, in their order, each with its label: "validation", or "validation NAME"."""
    labels = {}
    for key in keys:
        if key == UNNAMED:
            labels[key] = "validation"
        elif found := re.fullmatch(r"validation_(.+)_loss", key):
            labels[key] = f"validation {found.group(1)}"
    return labels

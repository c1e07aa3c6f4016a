"""Metric names: the parts of a step on rank 0 and the validation losses."""

from __future__ import annotations

import re
from collections.abc import Iterable

STEP_PARTS = {  # in stacking order, from the bottom
    "forward_seconds": "forward",
    "backward_seconds": "backward",
    "optimizer_seconds": "optimizer",
    "exposed_communication_seconds": "exposed communication",
    "data_seconds": "data",
}
UNNAMED = "validation_loss"  # loss on --validation_data FILE, or the mean of several validation_NAME_loss


def validation_losses(keys: Iterable[str]) -> dict[str, str]:
    """Maps the keys of validation losses, in order, to labels: "validation" or "validation NAME"."""
    labels = {}
    for key in keys:
        if key == UNNAMED:
            labels[key] = "validation"
        elif found := re.fullmatch(r"validation_(.+)_loss", key):
            labels[key] = f"validation {found.group(1)}"
    return labels

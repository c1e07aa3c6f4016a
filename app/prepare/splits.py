"""Determines the split of a file from its name and the names of its folders."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

SPLITS = {"train": "train", "training": "train", "validation": "validation", "valid": "validation"}
SPLITS |= {"val": "validation", "dev": "validation"}
SPLITS |= dict.fromkeys(("test", "testing", "eval", "evaluation"), "test")
# "train 01", "train (2)" and "train3" mean train.
_NUMBER = re.compile(r"^\d+|[\s\d()\[\]]+$")


def split_of(name: str) -> str | None:
    """Returns train, validation, test or None. name: relative to the dataset, with "/".

    The outermost folder with a split determines the result, otherwise the file name. A name has a split if one of its
    parts, between dots, dashes and underscores, is a word of SPLITS, with or without a number. "a train journey" is one
    part and has no split. A name with words of two splits has no split.
    """
    for part in PurePosixPath(name.lower()).parts:
        words = (_NUMBER.sub("", word) for word in re.split(r"[-._]", part))
        said = {SPLITS[word] for word in words if word in SPLITS}
        if len(said) == 1:
            return said.pop()
    return None

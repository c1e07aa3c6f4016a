"""Every flag of transformers' TrainingArguments is a flag of mpzero train, or is refused with what to do instead."""

import dataclasses
import json

import pytest

from .conftest import ROOT

transformers = pytest.importorskip("transformers")


def test_every_flag_of_the_trainer_is_answered():
    table = json.loads((ROOT / "scripts/flags.json").read_text())
    flags = {name for flag in table["flags"] for name in (flag["name"], flag["trainer"])}
    names = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    unknown = {name for names in table["unknown"].values() for name in names}
    # local_rank is ignored: launchers add it.
    assert sorted(names - flags - unknown - {"local_rank"}) == []

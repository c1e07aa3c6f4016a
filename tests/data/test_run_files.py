"""What the plot, the report and the follower share."""

import sys

import pytest

from .conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "app"))
import plot_metrics
from run_files.replacing import replacing
from run_files.step_parts import STEP_PARTS
from run_files.validation_sets import validation_losses
from run_follow import sinks
from run_report import charts

sys.path.pop(0)


def test_a_file_is_replaced_when_it_is_complete(tmp_path):
    path = tmp_path / "new folder/page.html"
    for text in ("first", "second"):
        with replacing(path) as file:
            assert file.suffix == ".html"
            file.write_text(text)
            assert not path.exists() if text == "first" else path.read_text() == "first"
        assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]


def test_an_error_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "loss.png"
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as file:
            file.write_text("half")
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_the_parts_of_a_step_are_one_list_and_documented():
    assert plot_metrics.STEP_PARTS is STEP_PARTS and charts.STEP_PARTS is STEP_PARTS
    assert len(plot_metrics.PART_COLORS) == len(STEP_PARTS)
    documented = (REPOSITORY / "docs/formats.md").read_text()
    assert [name for name in STEP_PARTS if f"`{name}`" not in documented] == []


def test_validation_sets_are_the_keys_of_their_losses():
    keys = [
        "loss",
        "validation_loss",
        "validation_wiki_loss",
        "validation_loss_loss",
        "validation__loss",
        "xvalidation_loss",
    ]
    assert validation_losses(keys) == {
        "validation_loss": "validation",
        "validation_wiki_loss": "validation wiki",
        "validation_loss_loss": "validation loss",
    }
    assert sinks.tag_of("validation_loss") == "loss/validation"
    assert sinks.tag_of("validation_wiki_loss") == "loss/validation_wiki"
    assert sinks.tag_of("loss") == "loss/train"

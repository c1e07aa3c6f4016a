"""Gated models and data sets: a 401 or 403 from Hugging Face becomes one sentence with the remedy."""

import sys
from types import SimpleNamespace

import datasets
import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

from .conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "app"))
from prepare import PrepareError, sources
from prepare.encoders import load_encoder

sys.path.pop(0)

KINDS = [(GatedRepoError, 403), (RepositoryNotFoundError, 401)]


def refuse(kind, status):
    def call(*_, **__):
        raise kind("a page of text", response=SimpleNamespace(status_code=status, headers={}, request=None))

    return call


@pytest.mark.parametrize(("kind", "status"), KINDS)
def test_a_tokenizer_that_is_refused_names_licence_and_token(monkeypatch, kind, status):
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse(kind, status))
    with pytest.raises(PrepareError) as caught:
        load_encoder("meta-llama/Meta-Llama-3-8B", None, None)
    sentence = str(caught.value)
    assert f"refuses access to the tokenizer 'meta-llama/Meta-Llama-3-8B' ({status})" in sentence
    assert "https://huggingface.co/meta-llama/Meta-Llama-3-8B " in sentence
    assert "HF_TOKEN" in sentence and "local folder" in sentence and "\n" not in sentence


@pytest.mark.parametrize(("kind", "status"), KINDS)
def test_a_data_set_that_is_refused_names_licence_and_token(monkeypatch, kind, status):
    def load_dataset(*_, **__):
        try:
            refuse(kind, status)()
        except kind as error:
            raise datasets.exceptions.DatasetNotFoundError("Dataset 'some/corpus' is a gated dataset.") from error

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(PrepareError) as caught, sources.hub_errors("some/corpus"):
        datasets.load_dataset("some/corpus")
    sentence = str(caught.value)
    assert f"refuses access to the dataset 'some/corpus' ({status})" in sentence and "HF_TOKEN" in sentence
    assert "https://huggingface.co/datasets/some/corpus " in sentence


def test_other_answers_are_not_refusals(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse(GatedRepoError, 500))
    with pytest.raises(PrepareError, match="cannot be downloaded from Hugging Face"):
        load_encoder("some/model", None, None)

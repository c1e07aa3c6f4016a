"""Hugging Face data sets by name, without a network: only the library's loader is replaced."""

import datasets
import pytest

from .conftest import prepare_module

PrepareError = prepare_module("").PrepareError
sources = prepare_module("sources")


def source_of(name: str):
    return sources.HubSource(name, "train", sources.Reading(), config_name="en")


def test_rows_are_streamed_with_configuration_and_split(monkeypatch):
    asked = []

    def load_dataset(*arguments, **options):
        asked.append((arguments, options))
        return datasets.Dataset.from_dict({"text": ["one", "", "two"]}).to_iterable_dataset()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    source = source_of("some/corpus")
    assert ["".join(document) for document in source.documents()] == ["one", "", "two"]
    assert asked == [(("some/corpus", "en"), {"split": "train", "streaming": True})]
    assert source.done == 3


def test_rows_of_wikitext_make_articles(monkeypatch):
    rows = ["", " = One = \n", " text \n", "", " = = Section = = \n", " = Two = \n", " more \n"]
    data = datasets.Dataset.from_dict({"text": rows})
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: data.to_iterable_dataset())
    documents = ["".join(document) for document in source_of("Salesforce/wikitext").documents()]
    assert documents == [" = One = \n text \n = = Section = = \n", " = Two = \n more \n"]


def test_an_error_of_the_library_becomes_one_sentence(monkeypatch):
    def load_dataset(*_, **__):
        raise ValueError("Unknown split.\nA long explanation.")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(
        PrepareError, match=r"'some/corpus' could not be read .*\(ValueError: Unknown split\.\)"
    ) as caught:
        list(source_of("some/corpus").documents())
    assert "\n" not in str(caught.value)

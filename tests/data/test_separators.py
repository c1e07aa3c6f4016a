"""The values of --document_separator: keywords, or a text with a few escapes."""

import pytest

from .conftest import prepare_module, read_tokens

SEPARATORS = [
    ("＊＊＊", "＊＊＊"),
    (r"\n\n", "\n\n"),
    (r"\t\r\0", "\t\r\0"),
    (r"\\n", r"\n"),
    (r"\x1eé\u2028", "\x1eé\u2028"),
    (r"\d\N{x}\ä", r"\d\N{x}\ä"),
]


@pytest.mark.parametrize(("argument", "separator"), SEPARATORS)
def test_only_the_documented_escapes_are_decoded(argument, separator):
    assert prepare_module("separators").separator_of(argument) == separator


def test_a_separator_that_is_not_ascii(prepare, tmp_path):
    (tmp_path / "a.txt").write_text("eins＊＊＊zwei＊＊＊drei")
    prepare("a.txt", "a.h5", "--document_separator", "＊＊＊")
    assert read_tokens(tmp_path / "a.h5").texts() == ["eins", "zwei", "drei"]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("\\", r"an incomplete \ at character 1: write \\ for a backslash"),
        (r"end\\\\" + "\\", "at character 8"),
        (r"\x4", r"\x needs two hexadecimal digits"),
        (r"\u12", r"\u needs four hexadecimal digits"),
        (r"\ud800", "unpaired surrogate"),
        ("", "--document_separator is empty"),
    ],
)
def test_invalid_separators(prepare, tmp_path, argument, message):
    (tmp_path / "a.txt").write_text("a")
    assert message in prepare("a.txt", "a.h5", "--document_separator", argument, fails=True).stderr

"""app/prepare_data.py makes packed token files of conversations, with a loss mask."""

import json
import sys
from types import SimpleNamespace

import datasets
import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import xxhash

from .chat_rows import TEMPLATES, assistant, made_of, texts_of, user, write_rows
from .conftest import Tokens, prepare_module, read_tokens

BYTES = ("--chat_template", TEMPLATES / "bytes.jinja")
ROWS = [{"messages": [user(f"What is {i}?"), assistant(f"A number{'!' * (i % 7)}")]} for i in range(40)]


def read_mask(path) -> np.ndarray:
    with h5py.File(path) as file:
        return file["loss_mask"][:]


def examples_in(made: Tokens, mask: np.ndarray) -> list[tuple[list[int], list[int]]]:
    """Documents with a trained token, and their masks; others must be padding, of 256."""
    spans = list(zip(made.offsets[:-1], made.offsets[1:], strict=True))
    assert all((made.tokens[a:b] == 256).all() for a, b in spans if not mask[a:b].any())
    return sorted((made.tokens[a:b].tolist(), mask[a:b].tolist()) for a, b in spans if mask[a:b].any())


@pytest.mark.parametrize("packing", ["true", "false"])
def test_a_packed_file(prepare, tmp_path, packing):
    write_rows(tmp_path / "a.jsonl", ROWS)
    out = prepare("a.jsonl", "a.h5", *BYTES, "--seq_length", 96, "--packing", packing).stdout
    made, mask = read_tokens(tmp_path / "a.h5"), read_mask(tmp_path / "a.h5")
    attributes = made.attributes
    assert (attributes["format_version"], attributes["packed_sequence_length"]) == (2, 96)
    assert (attributes["num_examples"], attributes["trained_tokens"]) == (40, mask.sum())
    assert attributes["end_of_turn_token_id"] == 256
    assert len(made.tokens) == len(mask) and len(made.tokens) % 96 == 1
    # No document crosses a row, and no first token of one is a target.
    ends = made.offsets[1:].astype(int)
    assert set(range(96, len(made.tokens), 96)) <= set(ends)
    assert not mask[made.offsets[:-1].astype(int)].any() and not mask[-1]
    texts = [f"user: What is {i}?\nassistant: A number{'!' * (i % 7)}".encode() for i in range(40)]
    begins = [len(text.split(b"A number")[0]) for text in texts]
    expected = [([*t, 256], [0] * b + [1] * (len(t) + 1 - b)) for t, b in zip(texts, begins, strict=True)]
    assert examples_in(made, mask) == sorted(expected)
    rows = len(made.tokens) // 96
    assert rows == 40 if packing == "false" else rows < 24
    assert "detected from messages" in out
    assert "examples: 40" in out and f"loss tokens: {mask.sum()}" in out and f"rows of 96: {rows}" in out
    assert out.count("[[A number") == 3


def test_packed_rows_are_not_sorted_by_length(prepare, tmp_path):
    """Validation reads the first rows: their examples must be as long as those of the last rows."""
    lengths = np.random.default_rng(1).integers(48, 90, 1000)  # one example in each row
    write_rows(tmp_path / "a.jsonl", [{"prompt": "p", "completion": "c" * int(length)} for length in lengths])
    prepare("a.jsonl", "a.h5", "--seq_length", 96)
    made, mask = read_tokens(tmp_path / "a.h5"), read_mask(tmp_path / "a.h5")
    spans = list(zip(made.offsets[:-1].astype(int), made.offsets[1:].astype(int), strict=True))
    found = [b - a for a, b in spans if mask[a:b].any()]
    assert sorted(found) == sorted(lengths + 2)
    assert abs(np.mean(found[:300]) - np.mean(found)) < 2


def test_groups_lose_no_example(prepare, tmp_path, monkeypatch):
    """40 examples in groups of 7: the mask is appended six times, and once for the last target."""
    monkeypatch.setattr(prepare_module("finetuning"), "GROUP", 7)
    write_rows(tmp_path / "a.jsonl", [{"prompt": f"{i} ", "completion": "c" * (i + 1)} for i in range(40)])
    prepare("a.jsonl", "a.h5", "--seq_length", 96)
    made, mask = read_tokens(tmp_path / "a.h5"), read_mask(tmp_path / "a.h5")
    found = {bytes(text[:-1]) for text, _ in examples_in(made, mask)}
    assert found == {f"{i} {'c' * (i + 1)}".encode() for i in range(40)} and made.attributes["num_examples"] == 40
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["loss_mask"].attrs["xxh3_64"].decode() == xxhash.xxh3_64_hexdigest(mask.tobytes())


def test_the_most_common_end_of_turn_is_recorded(prepare, tmp_path, chat_tokenizer):
    """<|im_end|> (605) ends the first answer, <|eot_id|> (603) the two others."""
    end = "'<|im_end|>' if loop.index0 == 1 else '<|eot_id|>'"
    (tmp_path / "t.jinja").write_text(
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}"
        "{% generation %}{{ m.content + (" + end + ") }}{% endgeneration %}{% endif %}{% endfor %}"
    )
    write_rows(tmp_path / "a.jsonl", [{"messages": [user("q"), assistant("a")] * 3}])
    flags = ("--tokenizer", chat_tokenizer(None), "--chat_template", "t.jinja", "--seq_length", 64)
    out = prepare("a.jsonl", "a.h5", *flags).stdout
    assert read_tokens(tmp_path / "a.h5").attributes["end_of_turn_token_id"] == 603
    assert "(603): 2, <|im_end|> (605): 1" in out


def test_parquet_json_and_csv_give_the_examples_of_json_lines(prepare, tmp_path):
    rows = [
        {"messages": [user("q"), assistant("a")]},
        {"messages": [user("r"), assistant("b", tool_calls=[{"name": "f", "arguments": {"x": 1}}])]},
        {"messages": [user("r"), assistant("b", tool_calls=[{"name": "f", "arguments": {"y": 2}}])]},
    ]
    write_rows(tmp_path / "a.jsonl", rows)
    (tmp_path / "b.json").write_text(json.dumps(rows))
    table = pyarrow.Table.from_pylist(rows)
    # Arrow gives each object all keys.
    assert table.to_pylist()[1]["messages"][1]["tool_calls"][0]["arguments"] == {"x": 1, "y": None}
    pyarrow.parquet.write_table(table, tmp_path / "c.parquet")
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"))
    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}{{ m | tojson }}{{ eos_token }}{% endfor %}")
    for name in ("a.jsonl", "b.json", "c.parquet", "saved"):
        prepare(name, f"{name}.h5", "--chat_template", template, "--seq_length", 400)
    made = [
        (tmp_path / f"{name}.h5").exists() and read_tokens(tmp_path / f"{name}.h5")
        for name in ("a.jsonl", "b.json", "c.parquet")
    ]
    assert all(np.array_equal(made[0].tokens, other.tokens) for other in made[1:])
    (tmp_path / "d.csv").write_text("prompt,completion\nq ,a\n")
    prepare("d.csv", "d.h5", "--seq_length", 8)
    assert read_tokens(tmp_path / "d.h5").tokens.tolist() == [*b"q a", *[256] * 6]
    assert read_mask(tmp_path / "d.h5").tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 0]


def test_ids_do_not_depend_on_the_number_of_workers(prepare, tmp_path, chat_tokenizer):
    folder = chat_tokenizer("llama3_dated")
    write_rows(tmp_path / "a.jsonl", ROWS * 5)
    for workers in (1, 2):
        prepare("a.jsonl", f"{workers}.h5", "--tokenizer", folder, "--seq_length", 128, "--workers", workers)
    one, two = (read_tokens(tmp_path / f"{workers}.h5") for workers in (1, 2))
    assert np.array_equal(one.tokens, two.tokens) and np.array_equal(one.offsets, two.offsets)
    assert np.array_equal(read_mask(tmp_path / "1.h5"), read_mask(tmp_path / "2.h5"))
    assert one.attributes["end_of_turn_token_id"] == 603
    assert one.attributes["chat_template"] == (folder / "chat_template.jinja").read_text()
    [text] = texts_of(folder, ROWS[:1])
    assert "Today Date: 26 Jul 2024" in text


def test_validation_gets_whole_conversations(prepare, tmp_path):
    write_rows(tmp_path / "a.jsonl", ROWS)
    validation = ("--validation_output", "v.h5", "--validation_fraction", "0.25")
    prepare("a.jsonl", "a.h5", *BYTES, "--seq_length", 96, *validation)
    files = [(read_tokens(tmp_path / name), read_mask(tmp_path / name)) for name in ("a.h5", "v.h5")]
    assert [file.attributes["num_examples"] for file, _ in files] == [30, 10]
    found = [text for file in files for text, _ in examples_in(*file)]
    assert len({bytes(text[:-1]) for text in found}) == 40


def test_a_file_is_kept_for_the_same_arguments_alone(prepare, tmp_path):
    write_rows(tmp_path / "a.jsonl", ROWS)
    made_with = (*BYTES, "--seq_length", 96)
    prepare("a.jsonl", "a.h5", *made_with)
    assert "up to date" in prepare("a.jsonl", "a.h5", *made_with, "--if_missing").stdout
    assert "seq_length" in prepare("a.jsonl", "a.h5", *BYTES, "--seq_length", 64, "--if_missing", fails=True).stderr
    padded = (*made_with, "--packing", "false", "--if_missing")
    assert "packing" in prepare("a.jsonl", "a.h5", *padded, fails=True).stderr
    for flag, value in (("rewritten_turns", "mask"), ("chat_template_kwargs", '{"a": 1}')):
        assert flag in prepare("a.jsonl", "a.h5", *made_with, f"--{flag}", value, "--if_missing", fails=True).stderr
    (tmp_path / "t.jinja").write_text((TEMPLATES / "bytes.jinja").read_text() + " ")
    other = ("--chat_template", "t.jinja", "--seq_length", 96)
    assert "chat_template" in prepare("a.jsonl", "a.h5", *other, "--if_missing", fails=True).stderr
    assert "format" in prepare("a.jsonl", "a.h5", "--format", "text", "--if_missing", fails=True).stderr


@pytest.mark.parametrize(
    ("rows", "flags", "words"),
    [
        (ROWS, BYTES, "--seq_length"),
        (ROWS, ("--seq_length", 64), "--chat_template FILE"),
        (ROWS, (*BYTES, "--seq_length", 64, "--add_bos", "false"), "--add_bos"),
        (ROWS, (*BYTES, "--seq_length", 64, "--skip_empty"), "--skip_empty"),
        (ROWS, (*BYTES, "--seq_length", 64, "--special_tokens", "text"), "--special_tokens"),
        (ROWS, (*BYTES, "--seq_length", 8), "no token within --seq_length"),
        (ROWS, (*BYTES, "--seq_length", 30), "end-of-turn token"),
        ([{"messages": [user("q")]}], (*BYTES, "--seq_length", 64), "no assistant message"),
        ([{"text": "a", "messages": []}], (*BYTES, "--seq_length", 64), "--format"),
        ([{"prompt": "a", "completion": "b"}], (*BYTES, "--seq_length", 64), "--chat_template"),
        ([{"prompt": [user("a")], "completion": [assistant("b")]}], ("--seq_length", 64), "--chat_template FILE"),
        ([{"prompt": "a", "completion": [assistant("b")]}], ("--seq_length", 64), "'completion'"),
        ([{"text": "a"}], ("--seq_length", 64), "--seq_length"),
        ([{"text": "a"}], ("--packing", "false"), "--packing"),
        ([{"text": "a"}], ("--format", "chat", *BYTES, "--seq_length", 64), "a.jsonl line 1"),
        (
            [*ROWS, {"messages": [{"role": "moderator", "content": "x"}]}],
            (*BYTES, "--seq_length", 64),
            "a.jsonl line 41",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(prepare, tmp_path, rows, flags, words):
    write_rows(tmp_path / "a.jsonl", rows)
    assert words in prepare("a.jsonl", "a.h5", *flags, fails=True).stderr
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ('{"messages": [{"role": "user", "content": "q"}], "messages": []}', "messages"),
        ('{"messages": [{"role": "assistant", "content": "a", "train": false, "train": true}]}', "train"),
    ],
)
@pytest.mark.parametrize("at", [0, 2])
def test_two_keys_of_one_name_are_refused(prepare, tmp_path, name, wrong, key, at):
    rows = list(map(json.dumps, ROWS[:4]))
    rows.insert(at, wrong)
    text = "\n".join(rows) if name == "a.jsonl" else f"[{','.join(rows)}]"
    (tmp_path / name).write_text(text)
    error = prepare(name, "a.h5", *BYTES, "--seq_length", 64, fails=True).stderr
    assert f"{'line' if name == 'a.jsonl' else 'element'} {at + 1} " in error and f"'{key}'" in error


def test_a_row_with_columns_of_two_formats_needs_a_format(prepare, tmp_path):
    write_rows(tmp_path / "a.jsonl", [ROWS[0], {**ROWS[1], "prompt": "p", "completion": "c"}])
    flags = (*BYTES, "--seq_length", 64)
    assert "a.jsonl line 2" in prepare("a.jsonl", "a.h5", *flags, fails=True).stderr
    prepare("a.jsonl", "a.h5", *flags, "--format", "chat")
    assert read_tokens(tmp_path / "a.h5").attributes["num_examples"] == 2


def test_files_of_text_are_refused_as_conversations(prepare, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    assert "a.txt" in prepare("a.txt", "a.h5", "--format", "chat", *BYTES, "--seq_length", 64, fails=True).stderr


def test_trained_tokens_are_green_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output = SimpleNamespace(shown=made_of("bytes", ROWS[:1]).examples)
    prepare_module("finetuning").print_examples(output, prepare_module("encoders").bytes_encoder())
    text = r"user: What is 0?\nassistant: "
    assert capsys.readouterr().out.endswith(f"{text}\x1b[32mA number<|endoftext|>\x1b[0m\n")


def test_messages_without_generation_tags_are_reported(prepare, tmp_path):
    template = (
        "{% for m in messages %}{% if loop.last %}{% generation %}{{ m.content + eos_token }}{% endgeneration %}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    (tmp_path / "t.jinja").write_text(template)
    write_rows(tmp_path / "a.jsonl", [{"messages": [user("q"), assistant("a")] * 3}] * 2)
    out = prepare("a.jsonl", "a.h5", "--chat_template", "t.jinja", "--seq_length", 32).stdout
    [line] = [line for line in out.splitlines() if "generation tags" in line]
    assert line.endswith(": 4.") and "a.h5" in line


def test_variables_of_the_template_come_from_the_row_first(chat_tokenizer, prepare, tmp_path):
    folder, date = chat_tokenizer("llama3_dated"), {"date_string": "1 May 2030"}
    rows = [{"messages": [user("q"), assistant("a")]}]
    for given, kwargs in ((date, {}), ({}, date), ({"date_string": "another"}, date)):
        [text] = texts_of(folder, [{**rows[0], "chat_template_kwargs": kwargs}], variables=given)
        assert "Today Date: 1 May 2030" in text
    write_rows(tmp_path / "a.jsonl", rows)
    for wrong in ("[]", '{"tools": []}', "{", '{"a": ' + "[" * 20_000 + "]" * 20_000 + "}"):
        result = prepare("a.jsonl", "a.h5", *BYTES, "--seq_length", 32, "--chat_template_kwargs", wrong, fails=True)
        assert "--chat_template_kwargs" in result.stderr
    prepare("a.jsonl", "a.h5", *BYTES, "--seq_length", 32, "--chat_template_kwargs", '{"unused": 1}')
    prepare("a.jsonl", "a.h5", *BYTES, "--seq_length", 32, "--chat_template_kwargs", '{"unused": 2}', "--overwrite")


def test_a_row_too_deep_for_workers_is_a_sentence(prepare, tmp_path):
    nested = {"function": {"name": "f", "arguments": json.loads("[" * 700 + "]" * 700)}}
    write_rows(tmp_path / "a.jsonl", [{"messages": [user("q"), {**assistant("a"), "tool_calls": [nested]}]}] * 300)
    flags = ("a.jsonl", "a.h5", *BYTES, "--tokenizer", "bytes", "--seq_length", 64)
    assert "--workers 1" in prepare(*flags, "--workers", 2, fails=True).stderr
    prepare(*flags, "--workers", 1)

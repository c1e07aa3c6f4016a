"""BOS, EOS and names of special tokens within texts are what the tokenizer's files and transformers make of them."""

import json
import os
from pathlib import Path

import h5py
import pytest
import xxhash
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from .conftest import app_module, prepare_module, read_tokens

encoders = prepare_module("encoders")
records = prepare_module("records")
PrepareError = prepare_module("").PrepareError

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin|>", "[CLS]"]
END, START, IM_END, BEGIN, CLS = range(5)
TEXT = "The marker <|im_end|> closes a turn, and <|endoftext|> ends a document."


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.add_tokens([AddedToken("<tool>", special=False)])
    return tokenizer


def template(text: str) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(text, special_tokens=[(token, i) for i, token in enumerate(SPECIAL)])


def folder_with(folder: Path, files: dict, single: str | None = None, tokenizer: Tokenizer | None = None) -> Path:
    """single: of the post-processor, such as "<|begin|> $A" """
    folder.mkdir(exist_ok=True)
    tokenizer = tokenizer or byte_level()
    if single is not None:
        tokenizer.post_processor = template(single)
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
    return folder


def load(folder: Path, *arguments):
    return encoders.load_encoder(str(folder), None, None, *arguments)


CONFIG, MAP, GENERATION, MODEL = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "config.json",
)
ADDED = {"content": "<|im_end|>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
CLASS = {"tokenizer_class": "PreTrainedTokenizerFast"}
DECODER = {"added_tokens_decoder": {"0": {**ADDED, "content": "<|endoftext|>", "special": True}}}
DECLARED = {
    "config": {CONFIG: {"eos_token": "<|im_end|>", "bos_token": "<|begin|>"}},
    "an object in the config": {CONFIG: {"eos_token": {**ADDED, "__type": "AddedToken"}}},
    "map": {CONFIG: {}, MAP: {"eos_token": "<|im_end|>", "bos_token": "<|begin|>"}},
    "an object in the map": {CONFIG: {}, MAP: {"eos_token": ADDED}},
    "map without a config": {MAP: {"eos_token": "<|im_end|>"}, MODEL: {"model_type": "llama"}},
    "map over an old config": {CONFIG: {"eos_token": "<|endoftext|>"}, MAP: {"eos_token": "<|im_end|>"}},
    "map without it": {CONFIG: {"eos_token": "<|im_end|>"}, MAP: {"bos_token": "<|begin|>"}},
    "config over a map": {CONFIG: {"eos_token": "<|im_end|>", **DECODER}, MAP: {"eos_token": "<|endoftext|>"}},
    "config over the model's ids": {CONFIG: {"eos_token": "<|im_end|>"}, GENERATION: {"eos_token_id": [0, 1]}},
}


@pytest.mark.parametrize("files", DECLARED.values(), ids=DECLARED)
def test_eos_and_bos_are_those_of_transformers(tmp_path, files):
    transformers = pytest.importorskip("transformers")
    files = {name: {**CLASS, **value} if name == CONFIG else value for name, value in files.items()}
    folder = folder_with(tmp_path / "tok", files)
    oracle = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    if CONFIG in files:
        auto = transformers.AutoTokenizer.from_pretrained(folder)
        assert (auto.eos_token_id, auto.bos_token_id) == (oracle.eos_token_id, oracle.bos_token_id)
    encoder = load(folder)
    assert encoder.eos_token_id == oracle.eos_token_id == IM_END
    assert encoder.bos_token_id == oracle.bos_token_id


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({GENERATION: {"eos_token_id": 2}}, IM_END),
        ({GENERATION: {"eos_token_id": [2]}, MODEL: {"eos_token_id": 0}}, IM_END),
        ({GENERATION: {}, MODEL: {"eos_token_id": 2}}, IM_END),
    ],
)
def test_the_models_id_ends_documents_where_the_tokenizer_declares_none(tmp_path, files, expected):
    assert load(folder_with(tmp_path / "tok", files)).eos_token_id == expected


@pytest.mark.parametrize(
    ("files", "listed", "unlisted"),
    [
        ({}, ["'<|endoftext|>' (0)", "'<|im_end|>' (2)", "'[CLS]' (4)"], []),
        ({GENERATION: {"eos_token_id": [2, 0]}}, ["'<|endoftext|>' (0)", "'<|im_end|>' (2)"], ["[CLS]"]),
        ({MODEL: {"eos_token_id": 99999}}, ["'<|endoftext|>' (0)"], []),
    ],
)
def test_a_guess_is_refused_with_the_choices(prepare, tmp_path, files, listed, unlisted):
    folder_with(tmp_path / "tok", files)
    (tmp_path / "a.txt").write_text("text")
    error = prepare("a.txt", "a.h5", "--tokenizer", "tok", fails=True).stderr
    assert "--eos_token" in error
    assert all(choice in error for choice in listed) and not any(choice in error for choice in unlisted)
    prepare("a.txt", "a.h5", "--tokenizer", "tok", "--eos_token", "<|im_end|>")
    assert read_tokens(tmp_path / "a.h5").attributes["eos_token_id"] == IM_END


DAMAGED = {
    "cut off": b'{"eos_token": ',
    "a list": b'["eos_token"]',
    "a number": b'{"eos_token": 5}',
    "an object without content": b'{"eos_token": {"lstrip": false}}',
    "content of another type": b'{"eos_token": {"content": 5}}',
    "not UTF-8": b'{"eos_token": "\xff"}',
    "nested too deep": b"[" * 100_000,
    "empty": b"",
    "null": b"null",
    "binary": bytes(range(256)),
    "zeros": bytes(4096),
}
CASES = [(name, text) for name in (CONFIG, MAP) for text in DAMAGED.values()]
CASES += [(name, DAMAGED[kind]) for name in (GENERATION, MODEL) for kind in ("cut off", "a list", "not UTF-8")]
CASES += [
    (name, b'{"eos_token_id": %b}' % value) for name in (GENERATION, MODEL) for value in (b'"a"', b"[]", b"[true]")
]
CASES += [(CONFIG, b'{"added_tokens_decoder": 5, "eos_token": "<|im_end|>"}'), (CONFIG, b'{"add_bos_token": "yes"}')]
CASES += [("tokenizer.json", text) for text in (b'{"version": ', b"[]", b'{"added_tokens": 5}', b'{"a": "\xff"}', b"")]


@pytest.mark.parametrize(("name", "text"), CASES)
def test_a_damaged_file_of_the_tokenizer_gets_one_sentence_with_its_name(tmp_path, name, text):
    folder = folder_with(tmp_path / "tok", {})
    (folder / name).write_bytes(text)
    with pytest.raises(PrepareError) as caught:
        load(folder)
    assert str(folder / name) in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


VOCABULARY = {"the words": b'{"a": 0}', "a word of another type": b'{"a": "b"}', **DAMAGED}


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json", "merges.txt"])
@pytest.mark.parametrize("text", VOCABULARY.values(), ids=VOCABULARY)
def test_a_damaged_vocabulary_gets_one_sentence_or_is_read(tmp_path, name, text):
    folder = folder_with(tmp_path / "tok", {CONFIG: {"eos_token": "<|im_end|>"}})
    if name != "tokenizer.json":
        byte_level().model.save(str(folder))
        (folder / "tokenizer.json").unlink()
    (folder / name).write_bytes(text)
    if (name, text) == ("merges.txt", b""):  # a vocabulary of bytes
        load(folder)
        return
    with pytest.raises(PrepareError) as caught:
        load(folder)
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [CONFIG, MAP])
def test_what_is_no_regular_file_declares_nothing_in_silence(tmp_path, name):
    folder = folder_with(tmp_path / "tok", {})
    os.mkfifo(folder / name)
    with pytest.raises(PrepareError, match=str(folder / name)):
        load(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(PrepareError, match=str(folder / name)):
        load(folder)


def test_a_damaged_file_ends_the_program_with_status_2(prepare, tmp_path):
    folder_with(tmp_path / "tok", {})
    (tmp_path / "tok" / CONFIG).write_bytes(b'{"eos_token": ')
    (tmp_path / "a.txt").write_text("text")
    assert f"tok/{CONFIG}" in prepare("a.txt", "a.h5", "--tokenizer", "tok", fails=True).stderr


BOS_CASES = {
    "post-processor": ("<|begin|> $A", {}, True),
    "post-processor with EOS": ("<|begin|> $A <|im_end|>", {}, True),
    "EOS alone": ("$A <|im_end|>", {}, False),
    "add_bos_token of a tokenizer.json, which transformers ignores": ("$A", {"add_bos_token": True}, False),
    "no post-processor": (None, {"add_bos_token": True}, False),
    "post-processor against add_bos_token": ("<|begin|> $A", {"add_bos_token": False}, True),
    "none": (None, {}, False),
}


@pytest.mark.parametrize(("single", "config", "expected"), BOS_CASES.values(), ids=BOS_CASES)
def test_bos_is_added_as_transformers_adds_it_and_eos_once(tmp_path, single, config, expected):
    transformers = pytest.importorskip("transformers")
    files = {CONFIG: {**CLASS, "eos_token": "<|im_end|>", "bos_token": "<|begin|>", **config}}
    folder = folder_with(tmp_path / "tok", files, single)
    oracle = transformers.AutoTokenizer.from_pretrained(folder)
    ids = oracle("A text.").input_ids
    encoder = load(folder)
    assert encoder.add_bos == expected == (ids[0] == BEGIN)
    assert bool(encoder.notes) == (config.get("add_bos_token", expected) != expected)
    without = oracle("A text.", add_special_tokens=False).input_ids
    made = documents_of(encoder, ["A text."])
    assert made == [[BEGIN] * expected + without + [IM_END]]
    assert load(folder, "true").add_bos and not load(folder, "false").add_bos


def documents_of(encoder, texts: list[str], size: int = 100) -> list[list[int]]:
    """What prepare_data.py writes, one document for each text."""
    program = app_module("prepare_data")
    source = Lines(texts)
    pieces = program.assign(source, encoder.cuts, 0.0, None)
    found = [[]]
    for _, parts in program.encode(pieces, source, program.Texts(encoder), workers=1):
        for _, part in parts:
            begin = 0
            for end in part.ends:
                found[-1] += part.tokens[begin:end].tolist()
                found.append([])
                begin = end
            found[-1] += part.tokens[begin:].tolist()
    assert found.pop() == []
    return found


class Lines:
    dataset, done = "texts", 0

    def __init__(self, texts: list[str]):
        self._texts = texts

    def documents(self):
        return ([text] for text in self._texts)


def test_add_bos_token_decides_without_a_tokenizer_json(tmp_path):
    """transformers reads vocab.json and merges.txt with the class's own post-processor."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "tok"
    folder.mkdir()
    byte_level().model.save(str(folder))
    for adds in (True, False):
        config = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|begin|>", "eos_token": "<|im_end|>"}
        (folder / CONFIG).write_text(json.dumps({**config, "add_bos_token": adds}))
        oracle = transformers.AutoTokenizer.from_pretrained(folder)
        assert load(folder).add_bos == adds == (oracle("A text.").input_ids[0] == BEGIN)


def test_what_the_post_processor_puts_first_is_bos_under_any_name(tmp_path):
    folder = folder_with(tmp_path / "tok", {CONFIG: {"eos_token": "<|im_end|>"}}, "[CLS] $A")
    encoder = load(folder)
    assert (encoder.bos_token_id, encoder.add_bos) == (CLS, True)
    folder_with(folder, {}, "[CLS] <|begin|> $A")
    with pytest.raises(PrepareError, match="--add_bos"):
        load(folder)


def test_bos_or_eos_that_the_tokenizer_lacks_is_refused(tmp_path):
    folder = folder_with(tmp_path / "tok", {CONFIG: {"eos_token": "<|im_end|>"}})
    with pytest.raises(PrepareError, match="bos_token"):
        load(folder, "true")
    with pytest.raises(PrepareError, match="no BOS"):
        encoders.load_encoder("bytes", None, None, "true")
    with pytest.raises(PrepareError, match="--eos_token"):
        encoders.load_encoder("bytes", "<x>", None)


def test_each_document_of_each_file_begins_with_bos(prepare, tmp_path, novel):
    """One long document is distributed to both files in pieces: what begins in a file has BOS there."""
    files = {CONFIG: {"bos_token": "<|begin|>", "eos_token": "<|im_end|>"}}
    folder_with(tmp_path / "tok", files, "<|begin|> $A")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ("one", "", novel)))
    arguments = ("--validation_output", "v.h5", "--validation_fraction", 0.3)
    process = prepare("a.jsonl", "a.h5", "--tokenizer", "tok", *arguments)
    assert "BOS 3" in process.stdout
    for name in ("a.h5", "v.h5"):
        made = read_tokens(tmp_path / name)
        documents = made.documents()
        assert all(document[0] == BEGIN and document[-1] == IM_END for document in documents)
        assert (made.tokens == BEGIN).sum() == (made.tokens == IM_END).sum() == len(documents) > 1
        assert (made.attributes["bos_token_id"], made.attributes["add_bos"]) == (BEGIN, 1)
    prepare("a.jsonl", "b.h5", "--tokenizer", "tok", "--add_bos", "false")
    made = read_tokens(tmp_path / "b.h5")
    assert BEGIN not in made.tokens and made.attributes["add_bos"] == 0


def special_counts(encoder, text: str) -> tuple[list[int], int]:
    ids, counts = encoder.function()([("", text)])
    return ids[0].tolist(), counts[0]


def test_special_tokens_within_texts_become_text(tmp_path):
    """The oracle is the library's encode_special_tokens."""
    folder = folder_with(tmp_path / "tok", {CONFIG: {"eos_token": "<|im_end|>"}})
    text = TEXT + " <tool> [CLS]<|im_end|>"
    oracle = Tokenizer.from_file(str(folder / "tokenizer.json"))
    as_ids = oracle.encode(text).ids
    oracle.encode_special_tokens = True
    as_text = oracle.encode(text).ids
    assert special_counts(load(folder), text) == (as_text, 4)
    assert special_counts(load(folder, "auto", "ids"), text) == (as_ids, 4)
    assert not set(as_text) & set(range(5)) and sum(token < 5 for token in as_ids) == 4
    tool = oracle.token_to_id("<tool>")  # no special token, and read as such
    assert tool in as_text and tool in as_ids


def full_words(kind: str) -> Tokenizer:
    """Models that would take a special token from their vocabulary as a full word."""
    if kind == "BPE":
        tokenizer = byte_level()
        definition = json.loads(tokenizer.to_str())
        definition["model"]["ignore_merges"] = True
        definition["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [SPLIT, {**BYTE_LEVEL}]}
        return Tokenizer.from_str(json.dumps(definition))
    special = ["<unk>", "</s>"]
    if kind == "Unigram":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=special, unk_token="<unk>")
    elif kind == "WordPiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer = trainers.WordPieceTrainer(vocab_size=60, special_tokens=special)
    else:
        tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer = trainers.WordLevelTrainer(vocab_size=60, special_tokens=special)
    tokenizer.train_from_iterator(["a page of </s t u n k> and < / s > in a page"], trainer)
    return tokenizer


SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": False}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


@pytest.mark.parametrize("kind", ["BPE", "Unigram", "WordPiece", "WordLevel"])
def test_no_model_finds_a_special_token_in_a_text(tmp_path, kind):
    tokenizer = full_words(kind)
    end = "<|im_end|>" if kind == "BPE" else "</s>"
    folder = folder_with(tmp_path / "tok", {CONFIG: {"eos_token": end}}, tokenizer=tokenizer)
    text = f"a page of {end} and a page"
    tokenizer.encode_special_tokens = True
    assert tokenizer.token_to_id(end) in tokenizer.encode(text, add_special_tokens=False).ids  # the library's own way
    ids, count = special_counts(load(folder), text)
    assert count == 1 and tokenizer.token_to_id(end) not in ids
    clean = "a page and a page"
    assert special_counts(load(folder), clean)[0] == tokenizer.encode(clean, add_special_tokens=False).ids


def test_special_tokens_are_counted_in_long_documents_and_recorded(prepare, tmp_path, novel):
    folder_with(tmp_path / "tok", {CONFIG: {"eos_token": "<|im_end|>"}})
    text = "".join(f"{line}\n<|im_end|>" for line in novel[:300_000].split("\n"))
    (tmp_path / "a.txt").write_bytes(text.encode())
    count = text.count("<|im_end|>")
    for special_tokens, ids in (("text", 1), ("ids", count + 1)):
        flags = () if special_tokens == "text" else ("--special_tokens", "ids")
        process = prepare("a.txt", "a.h5", "--tokenizer", "tok", "--workers", 2, "--overwrite", *flags)
        made = read_tokens(tmp_path / "a.h5")
        assert (made.tokens == IM_END).sum() == ids
        assert made.attributes["special_tokens"] == special_tokens
        assert made.attributes["special_tokens_in_text"] == count
        assert f"{count:,}, encoded as {special_tokens}" in process.stdout


def test_the_hash_is_that_of_the_vocabulary(prepare, tmp_path):
    """Computed here as docs/formats.md describes it, from the file."""
    (tmp_path / "a.txt").write_text("text")
    for kind in ("BPE", "Unigram"):
        tokenizer = byte_level() if kind == "BPE" else full_words(kind)
        eos = "<|im_end|>" if kind == "BPE" else "</s>"
        folder_with(tmp_path / "tok", {}, tokenizer=tokenizer)
        prepare("a.txt", "a.h5", "--tokenizer", "tok", "--eos_token", eos, "--overwrite")
        definition = json.loads((tmp_path / "tok/tokenizer.json").read_text())
        listed = definition["model"]["vocab"]
        tokens = dict(enumerate(t for t, _ in listed)) if kind == "Unigram" else {i: t for t, i in listed.items()}
        tokens.update({token["id"]: token["content"] for token in definition["added_tokens"]})
        text = "".join(f"{index}\t{tokens[index]}\n" for index in sorted(tokens))
        made = read_tokens(tmp_path / "a.h5").attributes
        assert made["tokenizer_hash"] == "xxh3:" + xxhash.xxh3_64_hexdigest(text.encode())
    prepare("a.txt", "a.h5", "--overwrite")
    attributes = read_tokens(tmp_path / "a.h5").attributes
    assert "tokenizer_hash" not in attributes and "bos_token_id" not in attributes
    assert (attributes["add_bos"], attributes["special_tokens_in_text"]) == (0, 0)


def test_the_hash_is_that_of_the_file_where_the_library_numbers_added_tokens_again(tmp_path):
    """With a hole, a token twice, and an empty one. Computed here as docs/formats.md describes it, from the file."""
    folder = folder_with(tmp_path / "tok", {CONFIG: {"eos_token": "<|im_end|>"}})
    definition = json.loads((folder / "tokenizer.json").read_text())
    last = definition["added_tokens"][-1]
    added = [(400, "<hole>"), (401, "<twice>"), (402, "<twice>"), (403, "")]
    definition["added_tokens"] += [{**last, "id": index, "content": token} for index, token in added]
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    tokens = {index: token for token, index in definition["model"]["vocab"].items()}
    tokens.update({token["id"]: token["content"] for token in definition["added_tokens"]})
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id("<hole>") != 400
    text = "".join(f"{index}\t{tokens[index]}\n" for index in sorted(tokens))
    assert load(folder).tokenizer_hash == "xxh3:" + xxhash.xxh3_64_hexdigest(text.encode())


@pytest.mark.parametrize("form", ["tokenizer.json", "vocab.json"])
def test_two_words_of_one_id_are_refused(tmp_path, form):
    folder = folder_with(tmp_path / "tok", {CONFIG: {"eos_token": "<|im_end|>"}})
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    words["Th"] = words["e"]
    if form == "vocab.json":
        Tokenizer.from_file(str(folder / "tokenizer.json")).model.save(str(folder))
        (folder / "tokenizer.json").unlink()
        (folder / form).write_text(json.dumps(words))
    else:
        (folder / form).write_text(json.dumps(tokenizer))
    with pytest.raises(PrepareError, match="'Th'") as caught:
        load(folder)
    assert str(folder / form) in str(caught.value) and str(words["e"]) in str(caught.value)


def with_special(tokenizer: Tokenizer, tokens: list[str]) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in tokens])
    return tokenizer


def model_with_needed_tokens(kind: str) -> Tokenizer:
    """Its special tokens besides </s> are needed for ordinary text."""
    letters = list("acst@d")
    if kind == "BPE":
        model = models.BPE({token: i for i, token in enumerate(["</s>", *letters, " "])}, [])
        return with_special(Tokenizer(model), ["</s>", "@"])
    if kind == "byte fallback":
        codes = [f"<0x{byte:02X}>" for byte in range(256)]
        words = {token: i for i, token in enumerate(["</s>", "<unk>", *codes, *letters, " "])}
        model = models.BPE(words, [], unk_token="<unk>", byte_fallback=True)
        return with_special(Tokenizer(model), ["</s>", *codes])
    if kind == "Unigram":
        words = [("<unk>", 0.0), ("</s>", 0.0), ("▁", -3.0), ("@", -4.0), *((letter, -5.0) for letter in "acst")]
        tokenizer = Tokenizer(models.Unigram(words, unk_id=0))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        return with_special(tokenizer, ["<unk>", "</s>", "@"])
    words = {token: i for i, token in enumerate(["<unk>", "</s>", "cat", "@", "sat"])}
    model = models.WordLevel if kind == "WordLevel" else models.WordPiece
    tokenizer = Tokenizer(model(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return with_special(tokenizer, ["<unk>", "</s>", "@", "sat"])


@pytest.mark.parametrize("kind", ["BPE", "byte fallback", "Unigram", "WordLevel", "WordPiece"])
def test_special_tokens_that_the_model_needs_stay(prepare, tmp_path, kind):
    """The oracle is the same tokenizer without marks on special tokens."""
    tokenizer = model_with_needed_tokens(kind)
    folder = folder_with(tmp_path / "tok", {CONFIG: {"eos_token": "</s>"}}, tokenizer=tokenizer)
    definition = json.loads(tokenizer.to_str())
    text = "cat ä sat" if kind == "byte fallback" else "cat @ sat"
    oracle = Tokenizer.from_str(json.dumps({**definition, "added_tokens": []})).encode(text)
    assert len(oracle.ids) >= 3 and "<unk>" not in oracle.tokens
    encoder = load(folder)
    words = {"byte fallback": 0, "WordLevel": 2, "WordPiece": 2}.get(kind, 1)
    assert special_counts(encoder, text) == (oracle.ids, words)
    assert tokenizer.token_to_id("</s>") not in special_counts(encoder, "cat </s> sat")[0]
    assert [("'@'" in note, "'</s>'" in note) for note in encoder.notes] == [(True, False)] * (words > 0)
    (tmp_path / "a.txt").write_text(text)
    process = prepare("a.txt", "a.h5", "--tokenizer", "tok")
    assert read_tokens(tmp_path / "a.h5").attributes["special_tokens_in_text"] == words
    assert ("'@'" in process.stdout) == (words > 0)


def make_older(path: Path, tokenizer: str) -> None:
    """The record that db0cd214 wrote for the same arguments."""
    with h5py.File(path, "r+") as file:
        record = json.loads(file.attrs["arguments"])
        del record["add_bos"], record["special_tokens"]
        record["tokenizer"] = records.fingerprint_of_old(tokenizer)
        file.attrs["arguments"] = json.dumps(record)


@pytest.mark.parametrize("kind", ["bytes", "tok"])
def test_token_files_of_older_versions_are_kept(prepare, tmp_path, kind):
    tokenizer = kind if kind == "bytes" else str(tmp_path / kind)
    if kind != "bytes":
        folder_with(tmp_path / kind, {CONFIG: {"eos_token": "<|im_end|>"}, MAP: {"eos_token": "<|im_end|>"}})
    (tmp_path / "a.txt").write_text("text")
    arguments = ("a.txt", "a.h5", "--tokenizer", tokenizer)
    prepare(*arguments)
    make_older(tmp_path / "a.h5", tokenizer)
    before = (tmp_path / "a.h5").stat().st_mtime_ns
    output = prepare(*arguments, "--if_missing").stdout
    assert ("an older version" in output) == (kind == "tok")
    prepare(*arguments, "--if_missing", "--add_bos", "false", "--special_tokens", "ids")
    if kind == "tok":
        assert "add_bos" in prepare(*arguments, "--if_missing", "--add_bos", "true", fails=True).stderr
    assert (tmp_path / "a.h5").stat().st_mtime_ns == before


def test_another_special_token_is_another_tokenizer(prepare, tmp_path):
    folder_with(tmp_path / "tok", {MAP: {"eos_token": "<|im_end|>"}})
    (tmp_path / "a.txt").write_text("text")
    prepare("a.txt", "a.h5", "--tokenizer", "tok")
    prepare("a.txt", "a.h5", "--tokenizer", "tok", "--if_missing")
    for flag, value in (("--add_bos", "false"), ("--special_tokens", "ids")):
        error = prepare("a.txt", "a.h5", "--tokenizer", "tok", "--if_missing", flag, value, fails=True).stderr
        assert flag.strip("-") in error
    (tmp_path / "tok" / MAP).write_text('{"eos_token": "<|endoftext|>"}')
    assert "tokenizer" in prepare("a.txt", "a.h5", "--tokenizer", "tok", "--if_missing", fails=True).stderr

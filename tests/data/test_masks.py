"""The assistant's turns are trained up to their end-of-turn token, and the ids are those of transformers."""

import json
import shutil

import numpy as np
import pytest
from tokenizers import Tokenizer, processors

from .chat_rows import assistant, made_of, template_of, texts_of, user
from .conftest import prepare_module

ONE = [user("How are you?"), assistant("I am good!")]
REASONED = [user("q"), assistant("a", reasoning_content="R1"), user("q"), assistant("b", reasoning_content="R2")]
CALL = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
START = "<|im_start|>"


def peer_of(folder):
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(str(folder)).apply_chat_template


@pytest.mark.parametrize("template", ["llama3", "qwen3", "tagged"])
@pytest.mark.parametrize("messages", [ONE, [{"role": "system", "content": "Be brief."}, *ONE, *ONE]])
def test_ids_are_those_of_transformers(chat_tokenizer, template, messages):
    folder = chat_tokenizer(template)
    [(ids, _)] = made_of(folder, [{"messages": messages}]).examples
    assert ids.tolist() == peer_of(folder)(messages, return_dict=True)["input_ids"]


@pytest.mark.parametrize("template", ["llama3", "tagged"])
def test_the_mask_is_that_of_transformers_with_generation_tags(chat_tokenizer, template):
    """By prefixes, the template without tags gives the mask of the template that has them."""
    messages = [*ONE, user("  And\n"), assistant(" you? \n"), user("x")]
    [(ids, mask)] = made_of(chat_tokenizer(template), [{"messages": messages}]).examples
    tagged = peer_of(chat_tokenizer("tagged"))
    oracle = tagged(messages, return_dict=True, return_assistant_tokens_mask=True)
    assert (ids.tolist(), mask.tolist()) == (oracle["input_ids"], oracle["assistant_masks"])


def test_llama3_trains_the_answer_with_its_end_of_turn(chat_tokenizer):
    made = made_of(chat_tokenizer("llama3"), [{"messages": [user("test"), assistant("ok")]}])
    header = "<|start_header_id|>{}<|end_header_id|>\n\n"
    text = f"<|begin_of_text|>{header.format('user')}test<|eot_id|>{header.format('assistant')}[[ok<|eot_id|>]]"
    assert texts_of(chat_tokenizer("llama3"), [{"messages": [user("test"), assistant("ok")]}]) == [text]
    assert dict(made.ends) == {603: 1}


def test_bos_comes_once_though_the_tokenizer_adds_it(chat_tokenizer, tmp_path):
    folder = tmp_path / "adds_bos"
    shutil.copytree(chat_tokenizer("llama3"), folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bos = "<|begin_of_text|>"
    tokenizer.post_processor = processors.TemplateProcessing([bos, "$A"], special_tokens=[(bos, 600)])
    tokenizer.save(str(folder / "tokenizer.json"))
    [(ids, _)] = made_of(folder, [{"messages": ONE}]).examples
    assert ids.tolist().count(600) == 1
    row = {"prompt": "The answer is", "completion": " four"}
    assert texts_of(folder, [row], format="prompt_completion") == [f"{bos}The answer is[[ four<stop>]]"]


def test_qwen3_masks_the_empty_think_block(chat_tokenizer):
    text = f"{START}user\nHow are you?<|im_end|>\n{START}assistant\n<think>\n\n</think>\n\n[[I am good!<|im_end|>]]\n"
    assert texts_of(chat_tokenizer("qwen3"), [{"messages": ONE}]) == [text]
    row = {"messages": ONE, "chat_template_kwargs": {"enable_thinking": False}}
    assert texts_of(chat_tokenizer("qwen3"), [row]) == [text]


def test_qwen3_trains_all_answers_without_reasoning_in_one_example(chat_tokenizer):
    [text] = texts_of(chat_tokenizer("qwen3"), [{"messages": ONE + ONE}])
    first, second = text.split("[[I am good!<|im_end|>]]")[:2]
    assert "<think>" not in first and second.endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize(
    ("rewritten", "trained", "reported"),
    [("split", {"R1", "R2"}, {"rewritten": 1}), ("mask", {"R2"}, {"rewritten": 1, "left out: reasoning": 1})],
)
def test_reasoning_that_later_turns_remove(chat_tokenizer, rewritten, trained, reported):
    rows = [{"messages": REASONED}]
    texts = texts_of(chat_tokenizer("qwen3"), rows, rewritten=rewritten)
    assert {text.split("[[<think>\n")[1][:2] for text in texts} == trained
    assert [text.count("[[") for text in texts] == [1] * len(trained)
    counts = made_of(chat_tokenizer("qwen3"), rows, rewritten=rewritten).counts
    assert {name: count for name, count in counts.items() if count} == reported


def test_reasoning_that_later_turns_remove_can_be_refused(chat_tokenizer):
    with pytest.raises(prepare_module("").PrepareError, match=r"a.jsonl line 1: .*message 2"):
        made_of(chat_tokenizer("qwen3"), [{"messages": REASONED}], rewritten="refuse")


def test_a_call_and_the_answer_after_its_result(chat_tokenizer):
    messages = [
        user("1+1?"),
        assistant(None, tool_calls=[CALL]),
        {"role": "tool", "content": "2"},
        assistant("It is 2."),
    ]
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    [text] = texts_of(chat_tokenizer("qwen3"), [{"messages": messages}])
    assert f"{START}assistant\n[[{call}<|im_end|>]]\n" in text
    assert text.endswith("<think>\n\n</think>\n\n[[It is 2.<|im_end|>]]\n")
    [text] = texts_of(chat_tokenizer("qwen3"), [{"messages": messages[:2]}])
    assert text.endswith(f"<think>\n\n</think>\n\n[[{call}<|im_end|>]]\n")


def test_what_the_template_leaves_out_is_reported(chat_tokenizer):
    made = made_of(chat_tokenizer("llama3"), [{"messages": REASONED, "tools": [CALL]}])
    assert made.counts["left out: tools"] == 1 and made.counts["left out: reasoning"] == 2
    # Of a call that the template does not write, an empty answer would be learned.
    made = made_of(chat_tokenizer("llama3"), [{"messages": [user("1+1?"), assistant(None, tool_calls=[CALL])]}])
    assert dict(made.dropped) == {"the template omits tool calls of an assistant message": 1}


CALLS = [user("1+1?"), assistant(None, tool_calls=[CALL]), {"role": "tool", "content": "2"}, assistant("It is 2.")]


@pytest.mark.parametrize("template", ["llama3", "tagged"])
@pytest.mark.parametrize("content", [None, "I will add."])
def test_a_call_is_looked_for_in_its_answer_alone(chat_tokenizer, template, content):
    """The name of the function is elsewhere in the text, but the template leaves out the call."""
    messages = [user("Please add 1 and 1."), assistant(content, tool_calls=[CALL]), *CALLS[2:]]
    made = made_of(chat_tokenizer(template), [{"messages": messages}])
    assert dict(made.dropped) == {"the template omits tool calls of an assistant message": 1}
    messages[1] = {**messages[1], "train": False}
    assert len(made_of(chat_tokenizer(template), [{"messages": messages}]).examples) == 1


@pytest.mark.parametrize("template", ["llama3", "tagged"])
def test_an_answer_of_white_space_is_dropped(chat_tokenizer, tmp_path, template):
    made = made_of(chat_tokenizer(template), [{"messages": [*ONE, user("q"), assistant(" \n")]}])
    assert (dict(made.dropped), made.examples) == ({"an assistant message is empty": 1}, [])
    # The template, not the message, is the reason.
    shutil.copytree(chat_tokenizer(template), tmp_path / "silent")
    source = template_of(template).replace("message.content", "(message.content | replace('I am good!', ' '))")
    (tmp_path / "silent/chat_template.jinja").write_text(source)
    made = made_of(tmp_path / "silent", [{"messages": ONE}])
    assert (dict(made.dropped), made.examples) == ({"an assistant message is empty": 1}, [])


def test_generation_tags_around_the_end_of_turn_alone(chat_tokenizer, tmp_path):
    """As in Gemma's templates for training."""
    shutil.copytree(chat_tokenizer("tagged"), tmp_path / "two")
    end = "{%- endgeneration -%}{%- generation -%}{{- '<|eot_id|>' -}}{%- endgeneration -%}"
    source = template_of("tagged").replace("+ '<|eot_id|>' -}}{%- endgeneration -%}", "-}}" + end)
    (tmp_path / "two/chat_template.jinja").write_text(source)
    rows = [{"messages": [*ONE, *ONE[:1], assistant("x", train=False)]}]
    assert texts_of(tmp_path / "two", rows) == texts_of(chat_tokenizer("tagged"), rows)


def test_messages_without_generation_tags_are_counted(chat_tokenizer, tmp_path):
    """The template tags the last message alone."""
    folder = tmp_path / "last"
    shutil.copytree(chat_tokenizer("tagged"), folder)
    source = template_of("tagged").replace("message.role == 'assistant'", "message.role == 'assistant' and loop.last")
    (folder / "chat_template.jinja").write_text(source)
    made = made_of(folder, [{"messages": ONE * 3}, {"messages": ONE}])
    assert (made.counts["untagged"], sum(made.ends.values()), len(made.examples)) == (2, 2, 2)
    rows = [{"messages": [*ONE, user("q"), assistant("a", train=False)]}]
    with pytest.raises(prepare_module("").PrepareError, match=r"a.jsonl line 1: .* 1 of 2 assistant messages"):
        made_of(folder, rows)


@pytest.mark.parametrize("template", ["llama3", "tagged"])
def test_messages_of_weight_0_are_not_trained(chat_tokenizer, template):
    messages = [*ONE, user("q"), assistant("wrong", weight=0), user("q"), assistant("bad", train=False), *ONE]
    [text] = texts_of(chat_tokenizer(template), [{"messages": messages}])
    assert text.count("[[I am good!<|eot_id|>]]") == text.count("[[") == 2


@pytest.mark.parametrize("trims", [False, True])
def test_a_token_across_the_begin_of_the_answer_is_not_trained(chat_tokenizer, tmp_path, trims):
    """' f' of ' four' holds the prompt's space. trims: a post-processor leaves spaces out of offsets, as Llama 3's."""
    shutil.copytree(chat_tokenizer(None), tmp_path / "tokenizer")
    if trims:
        tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer/tokenizer.json"))
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
        tokenizer.save(str(tmp_path / "tokenizer/tokenizer.json"))
    rows = [{"prompt": "The answer is ", "completion": "four"}]
    assert texts_of(tmp_path / "tokenizer", rows, format="prompt_completion") == ["The answer is f[[our<stop>]]"]
    assert made_of(tmp_path / "tokenizer", rows, format="prompt_completion").counts["straddling"] == 1


def test_tokens_of_a_span_by_hand():
    offsets = np.array([[0, 2], [1, 3], [2, 3], [3, 4], [3, 5], [4, 4], [5, 6]])
    masks = prepare_module("masks")
    assert [indices.tolist() for indices in masks.token_mask(offsets, [(2, 4), (5, 6)])] == [[2, 3], [6]]
    assert masks.num_straddling(offsets, [(2, 4), (5, 6)]) == 2


@pytest.mark.parametrize(("ids", "expected"), [([9, 9, 2], 1), ([9, 1, 2], 0), ([9, 1, 2, 3], None), ([], None)])
def test_the_end_of_turn_is_the_last_special_token(ids, expected):
    assert prepare_module("masks").end_of_turn(np.array(ids), frozenset({9})) == expected


def test_a_template_of_another_tokenizer_is_refused(chat_tokenizer, small_bpe, tmp_path):
    """In small_bpe <|eot_id|> is text of several tokens, by which no model would stop."""
    shutil.copytree(small_bpe, tmp_path / "other")
    (tmp_path / "other/chat_template.jinja").write_text("{% set bos_token = '' %}" + template_of("llama3"))
    with pytest.raises(prepare_module("").PrepareError, match=r"a.jsonl line 1: .*special token"):
        made_of(tmp_path / "other", [{"messages": ONE}])


def test_conversations_that_cannot_be_trained_are_dropped_and_counted(chat_tokenizer):
    rows = [[user("q")], [assistant("a"), user("q")], [user("q"), assistant("")], [user("q"), assistant(None)], ONE]
    made = made_of(chat_tokenizer("llama3"), [{"messages": messages} for messages in rows])
    reasons = {
        "no assistant message contributes to the loss": 1,
        "the assistant speaks first": 1,
        "an assistant message is empty": 2,
    }
    assert (dict(made.dropped), len(made.examples)) == (reasons, 1)


def test_an_example_is_cut_to_the_sequence_length():
    """Bytes: a prompt of 10 tokens and an answer of 20 have 6 targets within 16; a prompt of 16 has none."""
    rows = [{"prompt": "p" * 10, "completion": "c" * 20}, {"prompt": "p" * 16, "completion": "c"}]
    made = made_of("bytes", rows, format="prompt_completion", seq_length=16)
    [(ids, mask)] = made.examples
    assert (len(ids), mask.sum(), made.counts["cut"]) == (16, 6, 1)
    assert dict(made.dropped) == {"no token within --seq_length contributes to the loss": 1}


def test_bytes_with_characters_of_several_bytes():
    text = "user: ä?\nassistant: [[né<|endoftext|>]]user: x\nassistant: [[y<|endoftext|>]]"
    row = {"messages": [user("ä?"), assistant("né"), user("x"), assistant("y")]}
    made = made_of("bytes", [row])
    [(ids, mask)] = made.examples
    plain = text.replace("[[", "").replace("]]", "")
    parts = [part.encode() for part in plain.split("<|endoftext|>")]
    assert ids.tolist() == [*parts[0], 256, *parts[1], 256]
    assert bytes(ids[np.flatnonzero(mask)[:3]].astype(np.uint8)) == "né".encode()
    assert mask.sum() == 6 and dict(made.ends) == {256: 2}


END = "See <|im_end|>."


@pytest.mark.parametrize(
    ("question", "more", "tools"),
    [
        (END, {}, None),
        ("q", {"reasoning_content": END}, None),
        ("q", {"thinking": END}, None),
        ("q", {"tool_calls": [{"name": "add", "arguments": {"a": [END]}}]}, None),
        ("q", {}, [{"type": "function", "function": {"name": "add", "description": END}}]),
    ],
)
def test_names_of_special_tokens_within_messages_are_counted(chat_tokenizer, question, more, tools):
    rows = [{"messages": [user(question), assistant("a", **more)], "tools": tools}]
    assert made_of(chat_tokenizer("qwen3"), rows).counts["special tokens"] == 1


@pytest.mark.parametrize("name", ["reasoning_content", "thinking", "reasoning"])
def test_reasoning_is_reasoning_under_each_of_its_names(chat_tokenizer, name):
    rows = [{"messages": [user("q"), assistant("", **{name: "R1"})]}]
    [text] = texts_of(chat_tokenizer("qwen3"), rows)
    assert "[[<think>\nR1\n</think>\n\n<|im_end|>]]" in text
    rows = [{"messages": [user("q"), assistant("a", **{name: "R1"})]}]
    assert made_of(chat_tokenizer("llama3"), rows).counts["left out: reasoning"] == 1


def test_half_a_character_is_refused(chat_tokenizer):
    with pytest.raises(prepare_module("").PrepareError, match=r"a.jsonl line 1 .*ud800"):
        made_of(chat_tokenizer("llama3"), [{"messages": [user(json.loads('"\\ud800"')), assistant("a")]}])

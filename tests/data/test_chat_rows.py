"""Rows of every kind become messages; a row that cannot is refused with its place."""

import pytest

from .chat_rows import assistant, user
from .conftest import prepare_module

CALL = {"name": "add", "arguments": {"a": 1}}


def conversation_of(values: dict, format: str = "chat"):
    row = prepare_module("rows").Row("a.jsonl line 7", values)
    return prepare_module("chat").conversation_of(row, format)


def test_sharegpt_equals_messages():
    turns = [
        {"from": "human", "value": "q"},
        {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 1}}'},
        {"from": "observation", "value": "2"},
        {"from": "gpt", "value": "a", "weight": 0},
    ]
    tools = '[{"type": "function", "function": {"name": "add"}}]'
    messages = [
        {"role": "system", "content": "s"},
        user("q"),
        assistant(None, tool_calls=[CALL]),
        {"role": "tool", "content": "2"},
        assistant("a", train=False),
    ]
    sharegpt = conversation_of(
        {"conversations": turns, "system": "s", "tools": '[{"type": "function", "function": {"name": "add"}}]'}
    )
    assert sharegpt == conversation_of({"messages": messages, "tools": tools})
    assert sharegpt.trained == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        (["prompt", "chosen", "rejected"], "DPO"),
        (["prompt", "completion", "label"], "KTO"),
        (["prompt"], "GRPO"),
        (["image", "caption"], "--text_column"),
    ],
)
def test_data_for_what_mpzero_does_not_do_is_recognized(columns, what):
    chat = prepare_module("chat")
    with pytest.raises(chat.PrepareError, match=what) as caught:
        chat.detected(columns, "text")
    assert "docs/limits.md" in str(caught.value)


def test_instructions_equal_messages():
    values = {"instruction": "Add.", "input": "1 2", "output": "3", "system": "s", "history": [["q", "a"]]}
    messages = [{"role": "system", "content": "s"}, user("q"), assistant("a"), user("Add.\n\n1 2"), assistant("3")]
    assert conversation_of(values) == conversation_of({"messages": messages})
    assert conversation_of({"instruction": "Add.", "input": "", "output": "3"}).messages[0] == user("Add.")


def test_prompts_of_messages_are_not_trained():
    values = {"prompt": [user("q"), assistant("a"), user("r")], "completion": [assistant("b")]}
    found = conversation_of(values, "prompt_completion")
    assert [message["content"] for message in found.messages] == ["q", "a", "r", "b"]
    assert found.trained == [False, False, False, True]


@pytest.mark.parametrize(
    ("values", "format"),
    [
        ({"messages": [user("q"), assistant("a")]}, "chat"),
        ({"prompt": [user("q")], "completion": [assistant("a")]}, "prompt_completion"),
    ],
)
def test_the_column_system_is_the_first_message(values, format):
    found = conversation_of({**values, "system": "s"}, format)
    assert [message["content"] for message in found.messages] == ["s", "q", "a"]
    assert found.trained == [False, False, True]


def test_content_in_parts_is_joined_and_null_is_empty():
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    found = conversation_of({"messages": [user(parts), assistant(None, tool_calls=[CALL])]})
    assert [message["content"] for message in found.messages] == ["Hello", ""]


def test_the_first_name_of_reasoning_wins():
    found = conversation_of({"messages": [user("q"), assistant("a", reasoning="r", reasoning_content="s")]})
    assert found.messages[1]["reasoning_content"] == "s"


def test_arguments_that_are_json_text_are_parsed():
    call = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    found = conversation_of({"messages": [user("q"), assistant("", tool_calls=[call])]})
    assert found.messages[1]["tool_calls"][0]["function"]["arguments"] == {"a": 1}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"conversations": [{"from": "moderator", "value": "x"}]}, "'moderator'"),
        ({"messages": [{"role": "moderator", "content": "x"}]}, "'moderator'"),
        ({"messages": [{"content": "x"}]}, "'None'"),
        ({"messages": "x"}, "'messages'"),
        ({"messages": ["x"]}, "'messages'"),
        ({"messages": []}, "no message"),
        ({"messages": [user(3)]}, "'content'"),
        ({"messages": [user([{"type": "image", "text": "x"}])]}, "'content'"),
        ({"messages": [user("q"), assistant("a", weight=0.5)]}, "'weight'"),
        ({"messages": [{**user("q"), "train": True}]}, "'user'"),
        ({"messages": [user("q"), assistant("", tool_calls=[{"function": {"arguments": "{"}}])]}, "'tool_calls'"),
        ({"messages": [user("q"), assistant("", tool_calls=[{"name": "f", "arguments": "{"}])]}, "'arguments'"),
        ({"messages": [user("q")], "tools": "{"}, "'tools'"),
        ({"messages": [user("q")], "tools": [{"name": 5}]}, "'tools'"),
        ({"messages": [user("q")], "tools": [{"function": "f"}]}, "'tools'"),
        ({"messages": [user("q")], "tools": [{"function": {"name": ["f"]}}]}, "'tools'"),
        ({"messages": [user("q"), assistant("a", reasoning_content=["r"])]}, "'reasoning_content'"),
        ({"messages": [user("q"), assistant("a", thinking=5)]}, "'thinking'"),
        ({"messages": [user("q"), assistant("a", reasoning_content="r", reasoning={"r": 1})]}, "'reasoning'"),
        ({"messages": '[{"role": "user", "content": "q", "content": "r"}]'}, "duplicate key 'content'"),
        ({"messages": [user("q")], "tools": '[{"name": "f", "x": {"a": 1, "a": 2}}]'}, "duplicate key 'a'"),
        ({"messages": [user("q")], "tools": {"a": 1}}, "'tools'"),
        ({"messages": [user("q")], "chat_template_kwargs": [1]}, "'chat_template_kwargs'"),
        ({"messages": [user("q")], "chat_template_kwargs": {"tools": []}}, "'chat_template_kwargs'"),
        ({"instruction": "q", "output": "a", "history": ["q"]}, "'history'"),
        ({"instruction": "q", "output": "a", "history": 5}, "'history'"),
        ({"messages": [{"role": "system", "content": "s"}, user("q")], "system": "s"}, "'system'"),
        ({"conversations": [{"from": "system", "value": "s"}], "system": "s"}, "'system'"),
        ({"messages": [user("q")], "system": 5}, "'content'"),
        ({"messages": [user("q")], "conversations": [{"from": "human", "value": "q"}]}, "conversations"),
        ({"messages": [user("q")], "instruction": "q", "output": "a"}, "output"),
        ({"messages": None, "text": "x"}, "no messages or conversations or instruction and output"),
    ],
)
def test_a_row_that_is_no_conversation_is_refused(values, words):
    with pytest.raises(prepare_module("").PrepareError) as caught:
        conversation_of(values)
    assert "a.jsonl line 7" in str(caught.value) and words in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "format"),
    [
        (["id", "messages"], "chat"),
        (["conversations", "tools"], "chat"),
        (["instruction", "input", "output"], "chat"),
        (["prompt", "completion"], "prompt_completion"),
        (["prompt", "text"], "text"),
        ([], "text"),
    ],
)
def test_the_format_is_detected_from_the_columns(columns, format):
    assert prepare_module("chat").detected(columns, "text")[0] == format


@pytest.mark.parametrize("columns", [["messages", "text"], ["messages", "prompt", "completion"]])
def test_columns_of_several_formats_are_refused(columns):
    with pytest.raises(prepare_module("").PrepareError, match="--format"):
        prepare_module("chat").detected(columns, "text")

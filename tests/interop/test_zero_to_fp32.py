"""The output of zero_to_fp32, read by transformers, safetensors and h5py."""

import json
import shutil
import subprocess
import sys
import zipfile

import pytest
from trainer import BUILD

numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")


def loaded_by_transformers(folder):
    transformers = pytest.importorskip("transformers")
    loaded, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    return loaded


def assert_same_weights(expected, found):
    expected, found = expected.state_dict(), found.state_dict()
    assert expected.keys() == found.keys()
    for name, weight in expected.items():
        assert found[name].dtype == torch.float32
        assert torch.equal(weight.view(torch.int32), found[name].view(torch.int32)), name


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("shard_size", ["5GB", "40KB"])
def test_transformers_loads_the_same_bits_and_says_the_same(programs, model, tmp_path, ranks, shard_size):
    made, folder = model
    programs.make_checkpoint(folder, tmp_path / "checkpoints", ranks=ranks)
    out = tmp_path / "out"
    done = programs.zero_to_fp32(tmp_path / "checkpoints", out, "--max_shard_size", shard_size)
    assert "step 5" in done.stdout.decode()

    found = loaded_by_transformers(out)
    assert_same_weights(made, found)
    tokens = torch.arange(24).reshape(2, 12)
    with torch.no_grad():
        assert torch.equal(made(input_ids=tokens).logits, found(input_ids=tokens).logits)

    config = json.loads((out / "config.json").read_text())
    assert config["dtype"] == "float32"
    assert config["tie_word_embeddings"] == made.config.tie_word_embeddings
    names = {path.name for path in out.iterdir()}
    if shard_size == "5GB":
        assert names == {"model.safetensors", "config.json"}
    else:
        index = json.loads((out / "model.safetensors.index.json").read_text())
        assert set(index["weight_map"].values()) == names - {"config.json", "model.safetensors.index.json"}
        assert ("lm_head.weight" in index["weight_map"]) != made.config.tie_word_embeddings
        assert index["metadata"]["total_size"] == 4 * sum(p.numel() for p in found.parameters())


def test_safetensors_reads_the_file(programs, model, tmp_path):
    safetensors = pytest.importorskip("safetensors")
    made, folder = model
    programs.make_checkpoint(folder, tmp_path / "checkpoints")
    programs.zero_to_fp32(tmp_path / "checkpoints" / "tiny-5steps", tmp_path / "out")
    with safetensors.safe_open(tmp_path / "out" / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
        for name in file.keys():  # noqa: SIM118  (it is not a dict)
            assert torch.equal(file.get_tensor(name), made.state_dict()[name])


def test_hdf5_holds_one_data_set_for_each_parameter(programs, model, tmp_path):
    h5py = pytest.importorskip("h5py")
    made, folder = model
    programs.make_checkpoint(folder, tmp_path / "checkpoints")
    programs.zero_to_fp32(tmp_path / "checkpoints", tmp_path / "out", "--format", "hdf5")
    expected = dict(made.named_parameters())
    with h5py.File(tmp_path / "out" / "model.h5") as file:
        assert set(file) == set(expected)
        for name, weight in expected.items():
            assert file[name].dtype == numpy.float32
            assert numpy.array_equal(file[name][()], weight.detach().numpy())


@pytest.mark.parametrize("shard_size", ["5GB", "40KB"])
def test_torch_loads_what_format_pt_writes(programs, model, tmp_path, shard_size):
    made, folder = model
    programs.make_checkpoint(folder, tmp_path / "checkpoints")
    out = tmp_path / "out"
    programs.zero_to_fp32(tmp_path / "checkpoints", out, "--format", "pt", "--max_shard_size", shard_size)
    index = out / "pytorch_model.bin.index.json"
    weight_map = json.loads(index.read_text())["weight_map"] if index.exists() else {}
    files = set(weight_map.values()) or {"pytorch_model.bin"}
    assert {path.name for path in out.glob("*.bin")} == files
    assert (len(files) > 1) == (shard_size != "5GB")
    found = {}
    for file in files:
        with zipfile.ZipFile(out / file) as archive:
            assert archive.testzip() is None
        found |= torch.load(out / file, weights_only=True, mmap=True)
    expected = made.state_dict()
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(found[name], weight), name
    if made.config.tie_word_embeddings:
        assert found["lm_head.weight"].data_ptr() == found["model.embed_tokens.weight"].data_ptr()
    made.load_state_dict(found, strict=True)
    assert_same_weights(made, loaded_by_transformers(out))


@pytest.mark.parametrize("form", ["safetensors", "pt"])
def test_bf16_is_rounded_as_torch_rounds(programs, model, tmp_path, form):
    made, folder = model
    programs.make_checkpoint(folder, tmp_path / "checkpoints")
    out = tmp_path / "out"
    programs.zero_to_fp32(tmp_path / "checkpoints", out, "--dtype", "bf16", "--format", form)
    assert json.loads((out / "config.json").read_text())["dtype"] == "bfloat16"
    found = loaded_by_transformers(out).state_dict()
    for name, weight in made.state_dict().items():
        assert found[name].dtype == torch.bfloat16
        assert torch.equal(found[name], weight.to(torch.bfloat16)), name


@pytest.mark.parametrize(("form", "stage"), [("safetensors", 3), ("pt", 2), ("hdf5", 3)])
def test_memory_does_not_grow_with_the_model(programs, tmp_path, form, stage):
    """9 GB of states, 1.5 to 3 GB of weights: under 300 MB resident. The states are zeros without disk space."""
    programs.run("tests/make_sparse_checkpoint", tmp_path / "checkpoints", 8, 2048, 64128, 4, stage)
    program = BUILD / "bin" / "zero_to_fp32"
    words = [program, tmp_path / "checkpoints", tmp_path / "out", "--format", form]
    if form != "hdf5":
        words += ["--dtype", "bf16"]
    # Started by a small process: a child of one with torch inherits its peak.
    measure = (
        "import os, sys; pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ); "
        "_, status, usage = os.wait4(pid, 0); print('peak', usage.ru_maxrss); sys.exit(status != 0)"
    )
    done = subprocess.run([sys.executable, "-c", measure, *map(str, words)], capture_output=True, text=True, check=True)
    peak = int(done.stdout.split()[-1]) * 1024
    written = sum(path.stat().st_size for path in (tmp_path / "out").iterdir())
    assert written > 1_300_000_000
    assert peak < 300_000_000
    shutil.rmtree(tmp_path / "out")


def test_h5py_reads_the_checkpoint_itself(programs, model, tmp_path):
    h5py = pytest.importorskip("h5py")
    made, folder = model
    tag = programs.make_checkpoint(folder, tmp_path / "checkpoints", ranks=3)
    embedding = made.get_input_embeddings().weight.detach().numpy().ravel()
    parts = {}
    for rank in range(3):
        with h5py.File(tag / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.h5") as file:
            unit = file["embedding"]
            assert unit["master"].shape == (unit.attrs["count"],)
            begin = int(unit.attrs["begin"])
            parts[begin] = unit["master"][()]
            part = embedding[begin : begin + len(parts[begin])]
            assert numpy.array_equal(unit["exp_avg"][()], part * 2)
            assert numpy.array_equal(unit["exp_avg_sq"][()], part * 3)
    assert numpy.array_equal(numpy.concatenate([parts[begin] for begin in sorted(parts)]), embedding)
    with h5py.File(tag / "mp_rank_00_model_states.h5") as file:
        assert file.attrs["global_steps"] == 5
        units = json.loads(file.attrs["param_shapes"])
        shapes = {p["name"]: tuple(p["shape"]) for unit in units for p in unit["parameters"]}
    assert shapes == {name: tuple(weight.shape) for name, weight in made.named_parameters()}


def test_an_earlier_export_is_replaced_completely(programs, model, tmp_path):
    """Also one of another format: transformers prefers model.safetensors, and would load the old weights."""
    made, folder = model
    programs.make_checkpoint(folder, tmp_path / "checkpoints")
    out = tmp_path / "out"
    out.mkdir()
    (out / "tokenizer.json").write_text("{}")
    programs.zero_to_fp32(tmp_path / "checkpoints", out, "--max_shard_size", "40KB")
    former = {path.name for path in out.iterdir()} - {"tokenizer.json"}
    done = programs.zero_to_fp32(tmp_path / "checkpoints", out)
    assert {path.name for path in out.iterdir()} == {"model.safetensors", "config.json", "tokenizer.json"}
    assert_same_weights(made, loaded_by_transformers(out))
    (said,) = [line for line in done.stdout.decode().splitlines() if line.startswith("Replaced")]
    assert f"config.json, model-00001-of-000{len(former) - 2:02}.safetensors" in said

    done = programs.zero_to_fp32(tmp_path / "checkpoints", out, "--format", "pt")
    assert "Replaced the previous export: config.json, model.safetensors\n" in done.stdout.decode()
    assert {path.name for path in out.iterdir()} == {"pytorch_model.bin", "config.json", "tokenizer.json"}
    assert_same_weights(made, loaded_by_transformers(out))


def test_each_mistake_is_one_sentence_and_exit_code_2(programs, model, tmp_path):
    _, folder = model
    checkpoints = tmp_path / "checkpoints"
    tag = programs.make_checkpoint(folder, checkpoints)

    def message_of(*arguments):
        done = programs.zero_to_fp32(*arguments, check=False)
        assert done.returncode == 2
        assert not (tmp_path / "out").exists()
        lines = done.stderr.decode().strip().splitlines()
        assert len([line for line in lines if not line.startswith("Writing")]) == 1
        return lines[-1]

    out = tmp_path / "out"
    assert "OUTPUT_DIR is missing" in message_of(checkpoints)
    assert "--dtype" in message_of(checkpoints, out, "--dtype", "fp16")
    assert "--dtype bf16" in message_of(checkpoints, out, "--format", "hdf5", "--dtype", "bf16")
    assert "absent.json" in message_of(checkpoints, out, "--model_config", tmp_path / "absent.json")
    assert "--format" in message_of(checkpoints, out, "--format", "bin")
    assert "--max_shard_size 5XB" in message_of(checkpoints, out, "--max_shard_size", "5XB")
    assert "tiny-6steps" in message_of(checkpoints, out, "-t", "tiny-6steps")
    assert str(tmp_path / "absent") in message_of(tmp_path / "absent", out)
    assert "latest" in message_of(folder, out)

    (checkpoints / "latest").write_text("tiny-9steps\n")
    assert "tiny-9steps" in message_of(checkpoints, out)
    (checkpoints / "latest").write_text("tiny-5steps\n")
    shard = tag / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.h5"
    intact = shard.read_bytes()
    shard.write_bytes(intact[:-4096])
    assert str(shard) in message_of(checkpoints, out)
    files = json.loads((tag / "manifest.json").read_text())["content"]["files"]
    masters = [
        data for file in files if file["name"] == shard.name for data in file["datasets"] if data["kind"] == "master"
    ]
    flipped = masters[-1]["offset"] + 4 * masters[-1]["count"] - 1
    shard.write_bytes(intact[:flipped] + bytes([intact[flipped] ^ 1]) + intact[flipped + 1 :])
    assert str(shard) in message_of(checkpoints, out)
    (tag / "manifest.json").unlink()
    assert "manifest.json" in message_of(tag, out)


def test_help(programs):
    assert b"--max_shard_size" in programs.zero_to_fp32("--help").stdout

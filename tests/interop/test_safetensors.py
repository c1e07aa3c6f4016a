"""mpzero reads files of the safetensors package."""

import copy

import pytest

numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")


def read(programs, folder, shapes):
    """name -> array, from the raw fp32 that read_safetensors writes in the order of the names."""
    values = numpy.frombuffer(programs.read_safetensors(folder).stdout, dtype=numpy.float32)
    tensors, offset = {}, 0
    for name in sorted(shapes):
        numel = int(numpy.prod(shapes[name]))
        tensors[name] = values[offset : offset + numel].reshape(shapes[name])
        offset += numel
    assert offset == len(values)
    return tensors


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_every_16_bit_pattern_and_many_fp32_come_as_torch_widens_them(programs, tmp_path, dtype):
    if dtype == torch.float32:
        bits = torch.randint(-(2**31), 2**31, (300, 700), dtype=torch.int64).to(torch.int32)
    else:
        bits = torch.arange(-(2**15), 2**15).to(torch.int16).reshape(256, 256)
    weights = bits.view(dtype)
    safetensors_torch.save_file({"w": weights, "a": weights[:3].clone()}, tmp_path / "model.safetensors")
    found = read(programs, tmp_path, {"w": weights.shape, "a": (3, weights.shape[1])})
    expected = weights.to(torch.float32).numpy()
    assert numpy.array_equal(numpy.isnan(expected), numpy.isnan(found["w"]))
    numbers = ~numpy.isnan(expected)
    assert numpy.array_equal(expected.view(numpy.uint32)[numbers], found["w"].view(numpy.uint32)[numbers])
    assert numpy.array_equal(expected[:3].view(numpy.uint32)[numbers[:3]], found["a"].view(numpy.uint32)[numbers[:3]])


def test_shards_that_transformers_wrote(programs, model, tmp_path):
    made, _ = model
    rounded = copy.deepcopy(made).to(torch.bfloat16)
    rounded.save_pretrained(tmp_path, max_shard_size="40KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    weights = {name: weight.detach().to(torch.float32).numpy() for name, weight in rounded.named_parameters()}
    found = read(programs, tmp_path, {name: weight.shape for name, weight in weights.items()})
    for name, weight in weights.items():
        assert numpy.array_equal(weight, found[name]), name


def test_a_file_cut_short_is_named(programs, tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors_torch.save_file({"w": torch.ones(100)}, path)
    path.write_bytes(path.read_bytes()[:-1])
    done = programs.read_safetensors(tmp_path, check=False)
    assert done.returncode == 2
    assert str(path) in done.stderr.decode() and "tensor w" in done.stderr.decode()

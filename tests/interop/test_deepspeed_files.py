"""DeepSpeed's own checkpoints, converted by zero_to_fp32 in the same way as by DeepSpeed's script."""

import contextlib
import io
import json
import shutil

import pytest
from golden_run import GOLDEN, SAVED_BF16, SAVED_ZERO2, SAVED_ZERO3, saved_by_deepspeed

torch = pytest.importorskip("torch")


@pytest.fixture(params=[SAVED_ZERO2, SAVED_BF16, SAVED_ZERO3])
def saved(request):
    """The name of a golden run and the folder of checkpoints that DeepSpeed wrote in it."""
    return request.param, saved_by_deepspeed(request.param)


def weights_of_deepspeed(folder):
    pytest.importorskip("deepspeed")
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    with contextlib.redirect_stdout(io.StringIO()):
        return get_fp32_state_dict_from_zero_checkpoint(str(folder))


def test_same_bits_as_deepspeed(programs, saved, tmp_path):
    _, folder = saved
    done = programs.zero_to_fp32(folder, tmp_path / "out", "--format", "pt")
    assert b"has no config.json" in done.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"pytorch_model.bin"}
    found = torch.load(tmp_path / "out" / "pytorch_model.bin", weights_only=True)
    expected = weights_of_deepspeed(folder)
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(found[name], weight), name


def test_transformers_loads_it_with_a_config(programs, saved, tmp_path):
    transformers = pytest.importorskip("transformers")
    name, folder = saved
    tag = folder / (folder / "latest").read_text().strip()
    config = GOLDEN / name / "init" / "config.json"
    programs.zero_to_fp32(tag, tmp_path / "out", "--model_config", config.parent, "--max_shard_size", "8KB")
    loaded, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "float32"
    for key, weight in weights_of_deepspeed(folder).items():
        assert torch.equal(loaded.state_dict()[key], weight), key


def test_code_in_a_checkpoint_is_not_run(programs, saved, tmp_path):
    """A pickle that would run a command in torch.load: refused by name or ignored, and never executed."""
    _, folder = saved
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    tag = copy / (copy / "latest").read_text().strip()
    proof = tmp_path / "proof"

    class Attack:
        def __reduce__(self):
            import os

            return os.system, (f"touch {proof}",)

    model = min(tag.glob("*_model_states.pt"))
    states = torch.load(model, weights_only=False)
    states["global_steps"] = Attack()
    torch.save(states, model)
    done = programs.zero_to_fp32(copy, tmp_path / "out", check=False)
    assert done.returncode == 2
    assert b"posix system" in done.stderr
    states["global_steps"], states["note"] = 6, Attack()
    torch.save(states, model)
    programs.zero_to_fp32(copy, tmp_path / "out")
    assert not proof.exists()

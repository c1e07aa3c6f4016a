"""Writes fixtures/deepspeed_schema.json: every key that DeepSpeed's typed sections accept, with its default.

Requires deepspeed:  uv run --group interop tests/io/make_deepspeed_schema.py
"""

import json
from enum import Enum
from pathlib import Path

import deepspeed
from deepspeed.comm.config import CommsLoggerConfig
from deepspeed.monitor.config import CometConfig, CSVConfig, TensorBoardConfig, WandbConfig
from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
from deepspeed.runtime.zero.offload_config import DeepSpeedZeroOffloadOptimizerConfig, DeepSpeedZeroOffloadParamConfig

MODELS = {
    "zero_optimization": DeepSpeedZeroConfig,
    "zero_optimization.offload_optimizer": DeepSpeedZeroOffloadOptimizerConfig,
    "zero_optimization.offload_param": DeepSpeedZeroOffloadParamConfig,
    "bf16": DeepSpeedBF16Config,
    "fp16": DeepSpeedFP16Config,
    "tensorboard": TensorBoardConfig,
    "csv_monitor": CSVConfig,
    "wandb": WandbConfig,
    "comet": CometConfig,
    "comms_logger": CommsLoggerConfig,
}


def plain(value):
    """The JSON value that a user would write for a default. None if there is none."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bool | str | float | list) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    return None


def fields(model) -> dict:
    accepted = {}
    for name, field in model.model_fields.items():
        default = plain(field.get_default())
        accepted[name] = default
        if field.alias:
            accepted[field.alias] = default
    return accepted


def plain_class_keys(constants: str, prefix: str) -> dict:
    module = __import__(constants, fromlist=["*"])
    keys = {}
    for name, value in vars(module).items():
        if name.startswith(prefix) and isinstance(value, str) and hasattr(module, name + "_DEFAULT"):
            keys[value] = plain(getattr(module, name + "_DEFAULT"))
    return keys


def main() -> None:
    sections = {name: fields(model) for name, model in MODELS.items()}
    sections["activation_checkpointing"] = plain_class_keys(
        "deepspeed.runtime.activation_checkpointing.config", "ACT_CHKPT_"
    )
    sections["flops_profiler"] = plain_class_keys("deepspeed.profiling.constants", "FLOPS_PROFILER_")
    document = {"deepspeed": deepspeed.__version__, "sections": sections}
    output = Path(__file__).parent / "fixtures" / "deepspeed_schema.json"
    output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()

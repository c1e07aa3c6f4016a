"""The oracle of a TinyRun: PyTorch's AdamW on the same tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h5py


def train_in_torch(
    model, data: Path, *, steps: int, batch: int, seq_length: int, lr: float, clip: float
) -> Iterator[tuple[float, float]]:
    """Loss and gradient norm of each step, before its update. Trains what requires a gradient."""
    import torch

    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    tokens = tokens_of(data, steps * batch * seq_length + 1)
    for step in range(steps):
        window = tokens[step * batch * seq_length :][: batch * seq_length + 1]
        logits = model(input_ids=window[:-1].view(batch, seq_length)).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), window[1:])
        optimizer.zero_grad()
        loss.backward()
        yield loss.item(), torch.nn.utils.clip_grad_norm_(trained, clip).item()
        optimizer.step()


def tokens_of(data: Path, count: int):
    """The first tokens of a token file."""
    import torch

    with h5py.File(data) as file:
        return torch.tensor(file["tokens"][:count].astype("int64"))

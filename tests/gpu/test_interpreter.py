"""Our Triton kernels on a CPU, in Triton's interpreter.

In an environment of its own (torch, triton, numpy older than 2.3):
``TRITON_INTERPRET=1 python -m pytest tests/gpu/test_interpreter.py``
"""

import math
import os

import pytest

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("runs only with TRITON_INTERPRET=1", allow_module_level=True)

import torch

from gpu.backends.bmm import TorchMatmul
from gpu.own import SplitDecode, Tiles, merge
from gpu.problem import References, empty_cache, problem
from gpu.shapes import AttentionShape, StateShape
from gpu.states import check_state, state_tensors
from gpu.stripes import BOUND, merge_errors

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Triton's with numpy
CPU = torch.device("cpu")


def shape(
    batch: int, tokens: int, heads: int, kv_heads: int, k_dim: int, v_dim: int, latent: bool
) -> AttentionShape:
    return AttentionShape(
        "test", 1, batch, tokens, heads, kv_heads, k_dim, v_dim, latent, k_dim**-0.5, tokens
    )


SHAPES = [
    shape(2, 200, 12, 1, 80, 64, True),
    shape(2, 150, 16, 2, 64, 64, False),
    shape(1, 100, 70, 1, 48, 32, False),
    shape(1, 33, 4, 4, 16, 16, False),
]


@pytest.mark.parametrize("tma", [False, True])
@pytest.mark.parametrize("splits", [1, 3, 7])
@pytest.mark.parametrize("one", SHAPES)
def test_split_decode_equals_plain_attention(one: AttentionShape, splits: int, tma: bool) -> None:
    task = problem(one, empty_cache(one, CPU, torch.float32))
    tiles = Tiles(16 if one.group <= 16 else 64, 32, 4, 2)
    decode = SplitDecode(one, task.q, task.k, task.v, tma, splits, tiles)
    decode.out.fill_(math.nan)
    decode.lse.fill_(math.nan)
    checked = References(task).check(*decode())
    assert checked.out < 1e-5
    assert checked.lse is not None
    assert checked.lse < 1e-5


@pytest.mark.parametrize("one", SHAPES)
def test_torch_matmul_equals_plain_attention(one: AttentionShape) -> None:
    task = problem(one, empty_cache(one, CPU, torch.float32))
    assert References(task).check(*TorchMatmul().prepare(task)()).out < 1e-5


@pytest.mark.parametrize("parts", [1, 2, 8, 33])
def test_a_merge_is_right_on_uneven_stripes_and_a_plain_mean_is_not(parts: int) -> None:
    merged, plain_mean = merge_errors(parts, 5, 64, CPU)
    assert merged < 1e-5
    assert parts == 1 or plain_mean > 10 * BOUND


def test_a_stripe_without_tokens_has_no_weight() -> None:
    out, lse = torch.randn(3, 2, 32), torch.randn(3, 2)
    lse[1] = -math.inf
    found, total = torch.empty(2, 32), torch.empty(2)
    merge(out, lse, found, total, part_axis=0)
    weights = torch.softmax(lse[[0, 2]], 0)
    assert torch.allclose(found, (weights[..., None] * out[[0, 2]]).sum(0), atol=1e-6)
    assert torch.allclose(total, torch.logsumexp(lse, 0), atol=1e-6)


@pytest.mark.parametrize(
    "one",
    [
        StateShape("kda", 1, 2, 3, 3, 32, 32, True, True, 4),
        StateShape("gdn", 1, 2, 4, 2, 32, 16, True, False, 4),
        StateShape("mamba2", 1, 2, 4, 1, 32, 16, False, False, 4),
        StateShape("lightning", 1, 1, 2, 2, 16, 16, False, False, 4),
    ],
)
def test_a_state_update_equals_its_formula(one: StateShape) -> None:
    assert check_state(one, state_tensors(one, CPU)) < 1e-5

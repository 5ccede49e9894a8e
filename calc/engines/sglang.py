"""SGLang 0.5.23."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from calc.engines.base import DcpBackend, Engine
from calc.items import Item, Status, formula
from calc.units import Number, exact_div, greater

if TYPE_CHECKING:
    from calc.layers import Attention, StateMixer
    from calc.model import ModelSpec


@formula(
    unit="heads",
    source="SGLang 0.5.23 configs/model_config.py get_num_kv_heads",
    status=Status.ENGINE,
)
def sglang_kv_heads_per_rank(kv_heads: int, tp: int, dcp: int) -> Number:
    """Heads are split over tp/dcp ranks first, and the token axis over dcp."""
    return greater(1, kv_heads // exact_div(tp, dcp))


class Sglang(Engine):
    id: ClassVar[str] = "sglang"
    name: ClassVar[str] = "SGLang"
    version: ClassVar[str] = "0.5.23"
    # layers/dcp/comm.py: the reduce-scatter runs in float32, fi_a2a carries two float32 slots
    backends: ClassVar[dict[str, DcpBackend]] = {
        "ag_rs": DcpBackend("ag_rs", packed_statistics=None, output_bytes=4),
        "a2a": DcpBackend("a2a", packed_statistics=2),
        "fi_a2a": DcpBackend("fi_a2a", packed_statistics=4),
    }
    default_backend: ClassVar[str] = "a2a"
    # arg_groups/parallel_hook.py refuses others; model_overrides/deepseek_v2.py _dsa_dcp_overrides
    replicating_backends: ClassVar[tuple[str, ...]] = ("a2a", "fi_a2a")
    replicates_for_sparse: ClassVar[bool] = True
    dcp_rule: ClassVar[str] = "KV heads are first split over tp / dcp ranks"
    reduces_whole_kv_output: ClassVar[bool] = True
    stripes_indexer: ClassVar[bool] = False
    stripes_drafts: ClassVar[bool] = False  # model_executor/pool_configurator.py: draft pools
    # layers/dp_attention.py, layers/moe/token_dispatcher
    moe_backends: ClassVar[tuple[str, ...]] = (
        "gather_scatter",
        "deepep_low_latency",
        "deepep_high_throughput",
    )
    rank_order: ClassVar[tuple[str, ...]] = ("pcp", "dp", "pp")
    pcp_dcp_rule: ClassVar[str] = "SGLang refuses --dcp-size with --enable-prefill-cp"
    gathers_over_all: ClassVar[bool] = True
    dispatches_without_dp: ClassVar[bool] = True
    deepep_pads: ClassVar[bool] = False
    can_split_sequence: ClassVar[bool] = False

    def kv_heads_per_rank(self, kv_heads: int, tp: int, dcp: int) -> Item:
        return sglang_kv_heads_per_rank.item("kv_heads_per_rank", kv_heads=kv_heads, tp=tp, dcp=dcp)

    def dcp_values(self, attention: Attention, tp: int) -> list[int]:
        kv_heads = attention.kv_heads
        return [
            dcp
            for dcp in range(2, tp + 1)
            if tp % dcp == 0 and (kv_heads % (tp // dcp) == 0 or (tp // dcp) % kv_heads == 0)
        ]

    def corrupts(self, attention: Attention, tp: int, dcp: int) -> bool:
        # arg_groups/attention_hook.py says so and refuses it on XPU only: qwen3_5.py alone splits
        # the heads over tp / dcp ranks
        return dcp > 1 and not attention.heads_over_dcp and (tp // dcp) % attention.kv_heads != 0

    def splits_before_experts(self, model: ModelSpec, pp: int) -> bool:
        return True  # layers/communicator.py

    def default_state_dtype(self, mixer: StateMixer, conv_dtype: str) -> str:
        return "float32"  # configs/mamba_utils.py, unless the environment says otherwise

    def allowed_state_dtypes(self, mixer: StateMixer) -> tuple[str, ...]:
        return ("bf16", "float32")

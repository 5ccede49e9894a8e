"""vLLM 0.33.0."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from calc.engines.base import DcpBackend, Engine
from calc.items import Item, Status, formula
from calc.units import Number, greater

if TYPE_CHECKING:
    from calc.layers import Attention, StateMixer
    from calc.model import ModelSpec


@formula(
    unit="heads",
    source="vLLM 0.33 config/model.py get_num_kv_heads",
    status=Status.ENGINE,
)
def vllm_kv_heads_per_rank(kv_heads: int, tp: int) -> Number:
    """KV heads are split by tp; beyond that each rank keeps one whole head."""
    return greater(1, kv_heads // tp)


class Vllm(Engine):
    id: ClassVar[str] = "vllm"
    name: ClassVar[str] = "vLLM"
    version: ClassVar[str] = "0.33"
    # v1/attention/ops/dcp.py: cp_lse_ag_out_rs, dcp_a2a_lse_reduce
    backends: ClassVar[dict[str, DcpBackend]] = {
        "ag_rs": DcpBackend("ag_rs", packed_statistics=None, output_bytes=2),
        "a2a": DcpBackend("a2a", packed_statistics=2),
    }
    default_backend: ClassVar[str] = "ag_rs"
    replicating_backends: ClassVar[tuple[str, ...]] = ("ag_rs", "a2a")
    replicates_for_sparse: ClassVar[bool] = False
    dcp_rule: ClassVar[str] = "only the tp / kv_heads copies of a KV head are striped"
    reduces_whole_kv_output: ClassVar[bool] = False
    # config/vllm.py validate_nvfp4_kv_cache_with_mla
    refused_latent_formats: ClassVar[tuple[str, ...]] = ("nvfp4",)
    stripes_indexer: ClassVar[bool] = True
    stripes_drafts: ClassVar[bool] = True
    # fused_moe/all2all_utils.py, distributed/device_communicators/all2all.py
    moe_backends: ClassVar[tuple[str, ...]] = (
        "allgather_reducescatter",
        "deepep_low_latency",
        "deepep_high_throughput",
    )
    rank_order: ClassVar[tuple[str, ...]] = ("pcp", "pp", "dp")
    pcp_dcp_rule: ClassVar[str] = (
        "vLLM has both only for sparse latent attention with dcp = pcp or tp x pcp and ag_rs"
    )
    gathers_over_all: ClassVar[bool] = False
    dispatches_without_dp: ClassVar[bool] = False
    deepep_pads: ClassVar[bool] = True
    can_split_sequence: ClassVar[bool] = True

    def kv_heads_per_rank(self, kv_heads: int, tp: int, dcp: int) -> Item:
        return vllm_kv_heads_per_rank.item("kv_heads_per_rank", kv_heads=kv_heads, tp=tp)

    def dcp_values(self, attention: Attention, tp: int) -> list[int]:
        # config/model.py verify_with_parallel_config: only the copies of a head are striped
        copies = tp // attention.kv_heads
        group = attention.heads // attention.kv_heads
        return [
            dcp
            for dcp in range(2, copies + 1)
            if tp % dcp == 0 and copies % dcp == 0 and group % dcp == 0
        ]

    def splits_before_experts(self, model: ModelSpec, pp: int) -> bool:
        # models/deepseek_v2.py does it in the decoder layer; others slice after the all-reduce
        return bool(model.latent_mixers) and pp == 1

    def default_state_dtype(self, mixer: StateMixer, conv_dtype: str) -> str:
        return mixer.default_state_dtype or conv_dtype

    def allowed_state_dtypes(self, mixer: StateMixer) -> tuple[str, ...]:
        return mixer.vllm_state_dtypes

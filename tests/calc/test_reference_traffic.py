"""The bytes a simulated decode step sends are the bytes the traffic table says."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from calc.engines import ENGINES
from calc.errors import CalcError
from calc.layers import LatentAttention
from calc.reference import mla
from tests.calc.models import layers, model, report

HIDDEN = 48

STAGES = {  # of the simulation: of the table
    mla.QUERY_ALL_GATHER: "gather_query",
    mla.LSE_ALL_GATHER: "gather_lse",
    mla.OUTPUT_REDUCE_SCATTER: "reduce_partials",
    mla.OUTPUT_ALL_TO_ALL: "exchange_partials",
    mla.O_PROJ_ALL_REDUCE: "o_proj",
}

LAYOUTS = [  # tp, dcp, heads, batch
    (1, 1, 4, 3),
    (2, 1, 4, 2),
    (2, 2, 2, 3),
    (4, 2, 8, 5),
    (4, 4, 12, 1),
    (6, 3, 6, 5),
    (8, 2, 16, 3),
    (8, 8, 24, 4),
]
CHOICES = [(name, backend) for name, engine in ENGINES.items() for backend in engine.backends]


def simulated(
    tp: int, dcp: int, heads: int, batch: int, engine: str, backend: mla.Backend, replicated: bool
) -> dict[str, int]:
    """Bytes that all ranks together send in one layer, by the table's stage names."""
    shape = mla.Shape(
        hidden=HIDDEN, heads=heads, q_latent=20, kv_latent=16, nope=12, rope_width=6, value=10
    )
    rng = np.random.default_rng(batch)
    contexts = [rng.normal(size=(length, HIDDEN)) for length in range(1, batch + 1)]
    output = 4 if (engine, backend) == ("sglang", "ag_rs") else 2  # SGLang reduces in float32
    ledger = mla.decode_step(
        mla.random_weights(shape),
        contexts,
        tp=tp,
        dcp=dcp,
        backend=backend,
        query_replication=replicated,
        wire=mla.WireBytes(query=2, output=output, hidden=2),
    ).ledger
    assert set(ledger.sent) <= set(STAGES)
    return {STAGES[stage]: sum(by_rank) for stage, by_rank in ledger.sent.items()}


def tabulated(
    tp: int, dcp: int, heads: int, batch: int, engine: str, backend: str, replicated: bool
) -> dict[str, int]:
    """The same from the traffic table: bytes of a call on a rank, times the ranks."""
    layer = LatentAttention(
        heads=heads, kv_lora_rank=16, rope_dim=6, nope_dim=12, v_dim=10, q_lora_rank=20
    )
    found = report(
        model(layers(1, layer), hidden_size=HIDDEN),
        tp=tp,
        dcp=dcp,
        batch=batch,
        engine=engine,
        dcp_backend=backend,
        query_replication="on" if replicated else "off",
    )
    return {
        row.name: row.sent.value * tp
        for row in found.step.stages
        if row.kind == "mla" and row.sent is not None
    }


@pytest.mark.parametrize(("engine", "backend"), CHOICES)
@pytest.mark.parametrize(
    ("layout", "replicated"),
    list(product(LAYOUTS, (False, True))),
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else str(value),
)
def test_every_stage_sends_what_the_table_says_and_no_other_stage_sends(
    layout: tuple[int, int, int, int], replicated: bool, engine: str, backend: mla.Backend
) -> None:
    if replicated and backend not in ENGINES[engine].replicating_backends:
        with pytest.raises(CalcError, match="query_replication"):
            tabulated(*layout, engine, backend, replicated)
        return
    assert simulated(*layout, engine, backend, replicated) == tabulated(
        *layout, engine, backend, replicated
    )


def test_the_comparison_is_not_of_empty_tables() -> None:
    names = {
        name
        for engine, backend in CHOICES
        for name in tabulated(8, 8, 24, 4, engine, backend, replicated=False)
    }
    assert names == set(STAGES.values())

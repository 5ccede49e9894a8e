"""Weights that belong to no layer part: tables for each layer, and wider residual streams."""

from __future__ import annotations

from calc.hf_config.fields import Fields
from calc.hf_config.mixers import Source
from calc.model import ExtraTensor


def extra_weights(source: Source, layers: int) -> dict[str, ExtraTensor]:
    """The extra matrices that a config's fields imply, by name."""
    return _per_layer_inputs(source, layers) | _residual_streams(source, layers)


def _per_layer_inputs(source: Source, layers: int) -> dict[str, ExtraTensor]:
    """An embedding for each layer, of which a token reads one row (Gemma 3n and 4)."""
    fields, hidden = source.fields, source.hidden_size
    width = fields.maybe("hidden_size_per_layer_input", low=0) or 0
    if not width:
        return {}
    rows = fields.maybe("vocab_size_per_layer_input", high=2**26) or fields.whole(
        "vocab_size", high=2**26
    )
    return {
        "per_layer_embedding": ExtraTensor(
            rows=rows, columns=width * layers, split=True, active=False
        ),
        "per_layer_projection": ExtraTensor(rows=width * layers, columns=hidden),
        "per_layer_gates": ExtraTensor(rows=2 * width, columns=hidden, copies=layers),
    }


def _residual_streams(source: Source, layers: int) -> dict[str, ExtraTensor]:
    """Projections between several residual streams, and low-rank bypasses."""
    fields, hidden = source.fields, source.hidden_size
    made = {}
    streams = fields.maybe("altup_num_inputs", high=64)
    if streams and streams > 1:  # Gemma 3n: into and out of each further stream
        made["altup_projections"] = ExtraTensor(
            rows=hidden, columns=hidden, copies=2 * (streams - 1)
        )
    rank = fields.maybe("laurel_rank")
    if rank:
        made["laurel"] = ExtraTensor(rows=2 * rank, columns=hidden, copies=layers)
    mixed = fields.maybe("hc_mult", high=64)
    if mixed and mixed > 1:  # DeepSeek-V4: before attention and before the experts of each layer
        made["hyper_connections"] = ExtraTensor(
            rows=mixed * (mixed + 2), columns=mixed * hidden, copies=2 * layers
        )
        made["hyper_head"] = ExtraTensor(rows=mixed, columns=mixed * hidden)
    return made


def boundary_tensors(fields: Fields) -> int:
    """Hidden state and residual, or the streams that hyper-connections keep apart."""
    streams = fields.maybe("hc_mult", high=64)
    return streams if streams and streams > 1 else 2

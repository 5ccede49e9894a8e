"""Configs of other kinds of models are refused by the field that gives them away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calc.errors import CalcError

TEXT_PARTS = ("text_config", "llm_config", "language_config")
"""Where a model of several kinds of input keeps its language model."""

OTHER_KINDS: dict[str, str] = {
    "_class_name": "diffusion model",
    "_diffusers_version": "diffusion model",
    "unet_config": "diffusion model",
    "patch_size": "vision model",
    "image_size": "vision model",
    "num_mel_bins": "speech model",
    "feat_extract_norm": "speech model",
    "encoder_layers": "encoder-decoder model",
    "d_kv": "encoder-decoder model",
    "type_vocab_size": "text encoder",
    "logit_scale_init_value": "contrastive model of images and text",
    "classifier_dropout": "text encoder",
}
"""A field that decoders do not have, and what it stands for."""

OTHER_TYPES: dict[str, str] = {
    "albert": "text encoder",
    "bert": "text encoder",
    "clip": "contrastive model of images and text",
    "deberta": "text encoder",
    "deberta-v2": "text encoder",
    "distilbert": "text encoder",
    "electra": "text encoder",
    "modernbert": "text encoder",
    "roberta": "text encoder",
    "siglip": "contrastive model of images and text",
    "t5": "encoder-decoder model",
    "vit": "vision model",
    "wav2vec2": "speech model",
    "whisper": "speech model",
    "xlm-roberta": "text encoder",
}
"""Model types that share all their fields with decoders."""

TYPES_NOT_READ = ("recurrent_gemma", "retnet", "rwkv", "xlstm")
"""Beginnings of model types whose layers are of kinds that are not described here."""

NOT_READ: dict[str, str] = {
    "block_configs": "blocks that each have their own widths",
    "ssm_cfg": "a library's defaults that the file does not hold",
    "block_types": "recurrent blocks of a kind that is not described here",
}
"""Decoders whose layers cannot be read from the file."""


def text_part(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The language model's mapping and its path; raises for a model of another kind."""
    model_type = data.get("model_type")
    if isinstance(model_type, str):
        if model_type in OTHER_TYPES:
            raise CalcError("config_kind", field="model_type", kind=OTHER_TYPES[model_type])
        if model_type.startswith(TYPES_NOT_READ):
            reason = "recurrent layers of a kind that is not described here"
            raise CalcError("config_not_read", field="model_type", reason=reason)
    for name in TEXT_PARTS:
        inner = data.get(name)
        if isinstance(inner, dict) and inner:
            return inner, f"{name}."
    if data.get("is_encoder_decoder") is True:
        raise CalcError("config_kind", field="is_encoder_decoder", kind="encoder-decoder model")
    for name, kind in OTHER_KINDS.items():
        if data.get(name) is not None:
            raise CalcError("config_kind", field=name, kind=kind)
    for name, reason in NOT_READ.items():
        if data.get(name):
            raise CalcError("config_not_read", field=name, reason=reason)
    return data, ""

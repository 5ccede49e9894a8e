"""Errors that a person can act on: a code, the field it is about, and values.

The English sentence is ``str(error)``; the page words the same code in other
languages. Values may hold what a user typed, so a page must never render them
as Markdown or HTML.
"""

from __future__ import annotations

from typing import Any

MESSAGES: dict[str, str] = {
    # single values
    "not_an_integer": "{field}: {given} is not a whole number; allowed: {minimum} to {maximum}",
    "not_a_number": "{field}: {given} is not a number; allowed: {minimum} to {maximum}",
    "out_of_range": "{field}: {given} is out of range; allowed: {minimum} to {maximum}",
    "not_a_choice": "{field}: {given} is not one of {allowed}",
    "not_divisible": "{dividend} is not divisible by {divisor}",
    "unknown_field": "{field}: there is no such field",
    "missing_field": "{field}: this field is missing",
    "invalid_value": "{field}: {reason}",
    "text_too_long": "{field}: {length} characters; at most {maximum} are read",
    # presets and models
    "unknown_preset": "model: there is no preset {given}; known: {allowed}",
    "preset_invalid": "{file}: {field}: {reason}",
    "preset_unsourced": "{file}: {field}: no entry of `sources` covers this value",
    "nothing_kept": "model: no layer of {given} keeps anything, so there is no cache to size",
    "custom_missing": "spec: model is `custom`, so a description of its layers is needed",
    "custom_unused": "spec: only a custom model carries a description, and model is {given}",
    # layout
    "tp_heads": (
        "tp: {tp} does not divide the {heads} {what} of {kind} layers; tp may be {allowed}"
    ),
    "tp_replicas": (
        "tp: {tp} neither divides the {count} {what} of {kind} layers nor is a multiple of them; "
        "tp may be {allowed}"
    ),
    "dcp_divides_tp": "dcp: {dcp} does not divide tp = {tp}; dcp may be {allowed}",
    "dcp_kv_heads": (
        "dcp: {dcp} is not possible with tp = {tp}, {heads} query heads and {kv_heads} KV heads "
        "in {engine} ({rule}); dcp may be {allowed}"
    ),
    "dcp_kind": "dcp: {engine} has no decode context parallelism for {kind} layers; dcp must be 1",
    "dcp_nothing": "dcp: this model keeps no attention cache that could be striped; dcp must be 1",
    "pp_layers": "pp: {pp} stages need at least as many layers; the model has {layers}",
    "pp_cut": (
        "pp_layers: {stages} stages with {total} layers in all do not cut {layers} layers into "
        "pp = {pp} stages"
    ),
    "block_too_large": "block_size: a state of this size needs a block of {given} tokens",
    "prefix_context": (
        "shared_prefix: {given} tokens are more than a context of {context}; at most {context}"
    ),
    "log_too_long": "log: {length} characters; at most {maximum} are read",
    "log_foreign": "log: this looks like the output of {tool}, not of vLLM or SGLang",
    "log_empty": "log: no line of a vLLM or SGLang start-up was found",
    "pcp_kind": (
        "pcp: {engine} has no prefill context parallelism for {kind} layers, only for latent "
        "attention; pcp must be 1"
    ),
    "pcp_dcp": "pcp: not together with dcp here: {rule}; pcp or dcp must be 1",
    "ep_size": (
        "ep: {ep} ranks cannot share the experts; expert parallelism takes all the tp x pcp x dp "
        "= {ranks} ranks of a pipeline stage; ep may be {allowed}"
    ),
    "ep_experts": (
        "ep: {ep} ranks do not divide the {experts} experts; tp x pcp x dp may be {allowed}"
    ),
    "ep_nothing": "ep: this model has no experts; ep must be off",
    # options of an engine
    "moe_backend_unknown": "moe_backend: {engine} has no backend {given}; it has {allowed}",
    "moe_backend_ep": (
        "moe_backend: {given} sends each token to the ranks of its experts, so it needs ep on"
    ),
    "moe_backend_width": (
        "moe_backend: {given} exists for widths {allowed} in {engine}; this model sends {width}"
    ),
    "query_dtype": "query_dtype: {given} is not possible here: {reason}",
    "sequence_parallel": "sequence_parallel: {engine} has none of its own for this model",
    "timing_gpu": "gpu: times need a GPU with known rates and links, not {given}; known: {allowed}",
    "network_unknown": (
        "gpus_per_node: no network between nodes is known for {gpu}; "
        "every group must lie within {gpus} GPUs"
    ),
    "prefill_tokens": (
        "prefill_tokens: {given} tokens do not fit into a context of {context}; at most {context}"
    ),
    "backend_unknown": "dcp_backend: {engine} has no backend {given}; it has {allowed}",
    "query_replication": (
        "query_replication: {engine} cannot replicate the query projection for this model "
        "with backend {backend}"
    ),
    "format_kind": "kv_dtype: {given} does not exist for {kind} layers: {reason}",
    "format_width": "kv_dtype: {given} needs widths divisible by {divisor}; {width} is not",
    "state_dtype_kind": (
        "{field}: {kind} layers cannot keep their state in {given}; allowed: {allowed}"
    ),
    # prefix reuse, storage and identity
    "reuse_nothing": "model: no layer keeps anything that a prefix could reuse",
    "reuse_group": "missing: there is no group {given}; this model has {allowed}",
    "reuse_block": "block_size: {given} tokens are no chunk ({group}); at least 1",
    "reuse_window": (
        "prefix: the window of {window} tokens is larger than the prefix of {prefix}; at least "
        "{window} tokens are needed for it to matter"
    ),
    "reuse_range": "missing: {group} has no chunk {given} here; it has {count}, from 0 on",
    "reuse_unreadable": "missing: {given} ({group}) is no list of chunks such as 3, 7-9",
    "reuse_overlap": "missing: chunk {given} of {group} is named more than once",
    "identity_text": "{field}: {given} is no name; at most {maximum} printable letters",
    "identity_lora": "lora_version: a version needs the adapter it is of; lora is empty",
    "identity_interleave": "interleave: {given} tokens do not divide a rank's block of {block}",
    "storage_chunk": "chunk: {chunk} tokens do not divide into {unit}, over which rows are spread",
    "identity_part": (
        "part: {given} is none of the parts that ranks of this stage hold; allowed: 0 to {maximum}"
    ),
    "transfer_model": "model: a cache moves only between replicas of the same model",
    "transfer_network": (
        "network_rate: no network card is known for {gpu}; a rate above 0 GB/s is needed"
    ),
    "lmcache_states": (
        "prefix_caching: LMCache does not start beside {engine} without prefix caching, since "
        "no states are saved then; it must be on"
    ),
    "lmcache_batched": (
        "max_num_batched_tokens: {given} tokens are less than a block of {minimum}, which LMCache "
        "needs a step to fill where there are states; at least {minimum}"
    ),
    "reuse_chunk": "chunk: {given} tokens are no multiple of {unit}, the engine's blocks",
    "reuse_interval": (
        "interval: {interval} tokens are no multiple of {unit}, where a state can be saved"
    ),
    # what-ifs
    "whatif_layers": "layers: {first} to {last} is no range of the {layers} layers",
    "whatif_kv_heads": (
        "kv_heads: {given} does not divide the {heads} query heads; it may be {allowed}"
    ),
    # sweeps and plans
    "sweep_axes": "sweep: one or two different inputs can be swept, not {given}",
    "sweep_empty": "{field}: there is no value to sweep over",
    "sweep_reversed": "{field}: the range from {first} to {last} runs backwards",
    "sweep_step": "{field}: a step of {given} leads nowhere; at least {minimum}",
    "sweep_interval": "{field}: {output} does not depend on it; these do: {allowed}",
    "sweep_stateless": "{field}: {model} keeps no states that could be stored",
    "sweep_words": "{field}: only whole numbers have a range; give a list",
    "sweep_too_large": "sweep: {points} points; at most {maximum} are computed",
    "sweep_looped": (
        "sweep: {points} points over {names}, which are computed one by one; at most {maximum}"
    ),
    "pins_many": "pins: {given} scenarios; at most {maximum} are compared",
    "pins_unreadable": "pins: {reason}",
    "answer_empty": "answer: nothing was typed; for example {example}",
    "answer_unreadable": "answer: {given} is no number with a unit; for example {example}",
    "answer_unit": "answer: {given} is no unit of this answer ({allowed}); for example {example}",
    "launch_batched": "max_num_batched_tokens: vLLM refuses {given} with {batch} requests at once; "
    "it must be at least the batch",
    "plan_format": "kv_dtype: {engine} has no flag for {given}; it takes {allowed}",
    "plan_empty": "plan: no engine, backend and format are left to try",
    "plan_too_large": "plan: more than {maximum} layouts; try fewer GPUs, backends or formats",
    # links
    "link_too_long": "link: {length} characters; at most {maximum} are read",
    "link_unreadable": "link: it cannot be read ({reason})",
    "link_version": "v: this page reads links of version {supported}, not {given}",
    "link_unknown_key": "{field}: this key is not part of a link",
    "link_repeated_key": "{field}: the key appears {times} times in the link",
    # benchmark results
    "result_too_large": "result: {size} bytes; at most {maximum} are read",
    "result_not_json": "result: it is not JSON",
    "result_version": "result: it is no benchmark result of version {supported}",
    "result_invalid": "result: {place}: {reason}",
    "spec_unreadable": "spec: the description of the custom model cannot be read ({reason})",
    # config.json
    "config_too_long": "config: {length} bytes; at most {maximum} are read",
    "config_too_deep": "config: it is nested more than {maximum} levels deep",
    "config_unreadable": "config: it cannot be read ({reason})",
    "config_repeated_key": "{field}: the key appears more than once in the config",
    "config_missing": "{field}: the config does not say it; needed: {names}",
    "config_length": "{field}: {given} entries for {layers} layers",
    "config_kind": "{field}: this is the config of a {kind}, not of a text decoder",
    "config_not_read": "{field}: such models cannot be read from a config ({reason})",
    "config_type_unknown": (
        "model_type: {given} is not known here; the layers were read from the fields alone, and "
        "what only its code decides may be missing"
    ),
    "config_not_understood": "{field}: this field may affect the cache and was not understood",
    "config_assumed": "{field}: the config does not say it; {given} is the default of its class",
    "config_quantization": (
        "quantization_config: {given} is not a weight format known here; weights count as bf16"
    ),
}


def shown(value: Any) -> str:
    """A faulty value for a message: at most 40 characters of it, whatever it is."""
    try:
        text = repr(value)
    except ValueError:  # Python writes out no integer of more than 4,300 digits
        text = f"a {type(value).__name__} of very many digits"
    return text if len(text) <= 42 else f"{text[:40]}..."


class CalcError(ValueError):
    """Input that cannot be: carries ``code`` (see MESSAGES), ``field`` and ``values``."""

    def __init__(self, code: str, field: str | None = None, **values: Any) -> None:
        self.code = code
        self.values = values if field is None else {"field": field, **values}
        message = MESSAGES[code]
        head = message.partition(":")[0]
        if field is not None and head.isidentifier():
            message = "{field}" + message.removeprefix(head)
        super().__init__(message.format(**self.values))

    def about(self, field: str) -> CalcError:
        """The same fault under the name of the input that it was typed into."""
        return CalcError(self.code, **(self.values | {"field": field}))

    @property
    def field(self) -> str:
        """The Scenario field (or preset field) that has to change."""
        return str(self.values.get("field", MESSAGES[self.code].split(":")[0]))

"""The LaTeX symbol of every formula parameter and result.

Their meaning in words is in the page's catalogues (``symbol.<name>``); a test
holds that every parameter of every formula stands here.
"""

from __future__ import annotations

SYMBOLS: dict[str, str] = {
    # parallel layout
    "tp": r"\mathrm{tp}",
    "dcp": r"\mathrm{dcp}",
    "dp": r"\mathrm{dp}",
    "pp": r"\mathrm{pp}",
    "ranks": r"N",
    # workload
    "context": r"S",
    "batch": r"B",
    "tokens": r"T",
    "layers": r"L",
    # widths of attention
    "heads": r"H",
    "kv_heads": r"H_{kv}",
    "kv_heads_per_rank": r"H_{kv}^{r}",
    "k_dim": r"d_k",
    "v_dim": r"d_v",
    "kv_lora_rank": r"d_c",
    "rope_dim": r"d_R",
    "index_dim": r"d_I",
    "window": r"w",
    "chunk": r"c",
    "compress_ratio": r"m",
    "hidden_size": r"h",
    "vocab_size": r"V",
    "head_dim": r"d",
    "width": r"d",
    "heads_per_rank": r"H_r",
    "group_heads": r"H_g",
    # widths of state layers
    "inner_size": r"d_{\mathrm{inner}}",
    "state_size": r"d_{\mathrm{state}}",
    "groups": r"G",
    "groups_held": r"G'",
    "conv_kernel": r"K",
    "conv_columns": r"K_c",
    "key_heads": r"n_k",
    "key_dim": r"d_k",
    "value_heads": r"n_v",
    "value_dim": r"d_v",
    "conv_channels": r"C",
    "conv_elements": r"e_{\mathrm{conv}}",
    "recurrent_elements": r"e_{\mathrm{rec}}",
    "conv_bytes": r"b_{\mathrm{conv}}",
    "state_bytes": r"b_{\mathrm{state}}",
    # weights
    "rows": r"n_{\mathrm{out}}",
    "columns": r"n_{\mathrm{in}}",
    "copies": r"c",
    "shares": r"s",
    "group": r"g",
    "elements": r"e",
    "layer_parameters": r"p",
    # bytes
    "element_bytes": r"b",
    "query_bytes": r"b_q",
    "output_bytes": r"b_o",
    "row_bytes": r"r",
    "row_elements": r"e",
    "bytes_per_layer": r"x",
    "bytes_per_token": r"g",
    "held_tokens": r"n",
    "request_bytes": r"R",
    "fixed_bytes": r"F",
    "budget_bytes": r"M",
    "payload_bytes": r"P",
    "sent_bytes": r"s",
    "sent_per_layer": r"s",
    "statistics": r"\ell",
    "calls": r"c",
    "replicas": r"\rho",
}

"""``python -m calc timing``: the error table, or the time of one collective or kernel."""

from __future__ import annotations

import argparse
import json
from typing import Any, get_args

from calc.errors import CalcError
from calc.hardware import hardware_ids, load_hardware
from calc.items import Item
from calc.timing.collectives import Links
from calc.timing.data import Operation
from calc.timing.errors import error_rows, error_table
from calc.timing.kernels import Kernels

KERNELS = ("latent", "heads", "convolution", "recurrence")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--errors", action="store_true", help="estimates against measurements")
    parser.add_argument("--groups", action="store_true", help="with --errors: group by group")
    parser.add_argument("--gpu", default="h200", choices=hardware_ids(), help="GPU preset")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--collective", choices=get_args(Operation))
    what.add_argument("--kernel", choices=KERNELS)
    for name, default in (
        ("bytes", 2**20),
        ("ranks", 8),
        ("gpus-per-node", 8),
        ("batch", 1),
        ("heads", 128),
        ("kv-heads", 8),
        ("head-dim", 128),
        ("context", 8192),
        ("window", 0),
        ("element-bytes", 2),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    parser.add_argument("--json", action="store_true", help="print JSON")


def answer(options: argparse.Namespace) -> str:
    """What the command prints."""
    if options.collective or options.kernel:
        item = _collective(options) if options.collective else _kernel(options)
        found = {"us": float(item.value), "status": item.status.value}
        return json.dumps(found) if options.json else f"{item.value:.2f} µs (estimate)"
    if options.json:
        return json.dumps([_row(row) for row in error_rows(options.groups)], indent=2)
    return error_table(options.groups)


def _row(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__slots__}


def _collective(options: argparse.Namespace) -> Item:
    _at_least(options, ranks=2, bytes=1, gpus_per_node=1)
    links = Links(load_hardware(options.gpu), options.gpus_per_node, own_all_reduce=False)
    nodes = -(-options.ranks // options.gpus_per_node)
    return links.time("asked", options.collective, float(options.bytes), options.ranks, nodes)


def _kernel(options: argparse.Namespace) -> Item:
    _at_least(options, batch=1, heads=1, kv_heads=1, head_dim=1, context=1, window=0)
    kernels, width = Kernels(load_hardware(options.gpu)), options.head_dim
    match options.kernel:
        case "latent":
            row = 576 * options.element_bytes
            return kernels.latent(options.batch, options.heads, options.context, row)
        case "heads":
            row = options.kv_heads * 2 * width * options.element_bytes
            return kernels.heads(
                options.batch,
                options.heads,
                options.kv_heads,
                options.context,
                row,
                widths=(width, width),
                window=options.window,
            )
        case "convolution":
            return kernels.convolution(options.batch, 3 * options.heads * width, 3, "asked")
        case _:
            elements = options.heads * width * width
            return kernels.recurrence(options.batch, elements, 4, "asked")


def _at_least(options: argparse.Namespace, **smallest: int) -> None:
    for name, least in smallest.items():
        value = getattr(options, name)
        if value < least:
            raise CalcError("out_of_range", name, given=value, minimum=least, maximum=2**40)

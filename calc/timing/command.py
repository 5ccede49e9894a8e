"""``python -m calc timing``: the error table, or the time of one collective or kernel."""

from __future__ import annotations

import argparse
import json
from typing import Any, get_args

from calc.fields import WholeField
from calc.hardware import hardware_ids, load_hardware
from calc.items import Item
from calc.timing.collectives import Links
from calc.timing.data import Operation
from calc.timing.errors import error_rows, error_table
from calc.timing.kernels import Kernels

SIZES = {
    field.name: field
    for field in (
        WholeField("bytes", 2**20, 1, 2**50),
        WholeField("ranks", 8, 2, 2**16),
        WholeField("gpus_per_node", 8, 1, 1024),
        WholeField("batch", 1, 1, 2**20),
        WholeField("heads", 128, 1, 2**20),
        WholeField("kv_heads", 8, 1, 2**20),
        WholeField("head_dim", 128, 1, 2**20),
        WholeField("context", 8192, 1, 2**30),
        WholeField("window", 0, 0, 2**30),
        WholeField("element_bytes", 2, 1, 16),
    )
}
KERNELS = ("latent", "heads", "convolution", "recurrence")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--errors", action="store_true", help="estimates against measurements")
    parser.add_argument("--groups", action="store_true", help="with --errors: group by group")
    parser.add_argument("--gpu", default="h200", choices=hardware_ids(), help="GPU preset")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--collective", choices=get_args(Operation))
    what.add_argument("--kernel", choices=KERNELS)
    for field in SIZES.values():
        name = field.name.replace("_", "-")
        parser.add_argument(
            f"--{name}", default=str(field.default), help=f"default {field.default}"
        )
    parser.add_argument("--json", action="store_true", help="print JSON")


def answer(options: argparse.Namespace) -> str:
    """What the command prints."""
    for name, field in SIZES.items():
        setattr(options, name, field.parse(getattr(options, name)))
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
    links = Links(load_hardware(options.gpu), options.gpus_per_node, own_all_reduce=False)
    nodes = -(-options.ranks // options.gpus_per_node)
    return links.time("asked", options.collective, float(options.bytes), options.ranks, nodes)


def _kernel(options: argparse.Namespace) -> Item:
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

"""What stored prefixes weigh, where they can lie, and what loading one costs beside computing it.

Sizes are exact; rates of the tiers below HBM are assumptions that a caller can replace, and
times are estimates. Everything is an Item. An *object* is one chunk of one store on one rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from calc.capacity import Component
from calc.errors import CalcError
from calc.hardware import Hardware
from calc.items import Item, Status, formula, total
from calc.layers import Growth
from calc.layers.base import compressed_per_token, growing_per_token
from calc.report import Report, evaluate
from calc.timing.report import times
from calc.units import GIB, Number, exact_div

ASSUMED = "assumed; replace it by your own"
TYPED = "typed"
MOST_TOKENS = 2**24


# --- objects --------------------------------------------------------------------------------------


@formula(unit="B", source="rows of one chunk on one of the ranks that stripe it")
def object_rows(row_bytes: int, layers: int, block_size: int, dcp: int) -> int:
    """One chunk of one store on one rank."""
    return row_bytes * layers * exact_div(block_size, dcp)


@formula(unit="B", source="one row stands for several tokens")
def object_rows_compressed(
    row_bytes: int, layers: int, block_size: int, compress_ratio: int
) -> int:
    """One chunk of a compressed cache on one rank."""
    return row_bytes * layers * exact_div(block_size, compress_ratio)


@formula(unit="B", source="every rank of the TP group stores its own object")
def object_on_ranks(object_bytes: int, tp: int) -> int:
    """The same chunk on all ranks of the TP group, equal objects included."""
    return object_bytes * tp


@formula(unit="B", source="equal bytes are stored once")
def object_unique(object_bytes: int, tp: int, copies: int) -> int:
    """The same chunk, each distinct object once."""
    return object_bytes * exact_div(tp, copies)


@formula(unit="%", source="objects that are copies of another")
def saved_percent(stored_bytes: Number, unique_bytes: Number) -> Number:
    """What deduplication saves, of capacity and of what is written."""
    return 100 * (stored_bytes - unique_bytes) / stored_bytes


@dataclass(frozen=True, slots=True)
class Stored:
    """One store's object: on a rank, on all TP ranks, and each distinct one once."""

    part: Component
    on_rank: Item
    on_ranks: Item
    unique: Item


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects of one chunk on the pipeline stage that holds most; state objects are snapshots.

    ``chunk`` tokens each; the sums take one snapshot with each chunk.
    """

    chunk: int
    stored: tuple[Stored, ...]
    on_rank: Item
    on_ranks: Item
    unique: Item
    saved: Item


def objects(report: Report, chunk: int) -> Objects:
    """What one chunk weighs on a rank, on its TP group, and without copies."""
    tp = report.scenario.tp
    made = []
    for part in report.cache.stage.components:
        store = part.store
        unit = store.tokens_per_row * store.dcp
        if chunk < 1:
            raise CalcError("out_of_range", "chunk", given=chunk, minimum=1, maximum=MOST_TOKENS)
        if part.growth is not Growth.STATE and chunk % unit:
            raise CalcError("storage_chunk", chunk=chunk, unit=unit)
        one = _object(part, chunk)
        key = f"{store.kind}.{store.name}"
        made.append(
            Stored(
                part,
                one,
                object_on_ranks.item(f"{key}.on_ranks", object_bytes=one, tp=tp),
                object_unique.item(f"{key}.unique", object_bytes=one, tp=tp, copies=store.copies),
            )
        )
    everywhere = total("storage.on_ranks", "B", (one.on_ranks for one in made))
    unique = total("storage.unique", "B", (one.unique for one in made))
    return Objects(
        chunk,
        tuple(made),
        total("storage.on_rank", "B", (one.on_rank for one in made)),
        everywhere,
        unique,
        saved_percent.item("storage.saved", stored_bytes=everywhere, unique_bytes=unique),
    )


def whole_chunk(report: Report, least: int) -> int:
    """The smallest multiple of ``least`` tokens that every store of the stage divides into rows."""
    units = (
        part.store.tokens_per_row * part.store.dcp
        for part in report.cache.stage.components
        if part.growth is not Growth.STATE
    )
    return math.lcm(least, *units)


def _object(part: Component, chunk: int) -> Item:
    store = part.store
    if part.growth is Growth.STATE:
        return part.per_request
    key = f"{store.kind}.{store.name}.object"
    if store.tokens_per_row > 1:
        return object_rows_compressed.item(
            key,
            row_bytes=store.bytes,
            layers=part.layers,
            block_size=chunk,
            compress_ratio=store.tokens_per_row,
        )
    return object_rows.item(
        key, row_bytes=store.bytes, layers=part.layers, block_size=chunk, dcp=store.dcp
    )


# --- tiers, loading and recomputing ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tier:
    """Where prefixes can lie, as one rank sees it: bytes, bytes a second, and a start in µs."""

    id: str
    capacity_bytes: int
    rate: float
    start_us: float
    source: str


@dataclass(frozen=True, slots=True)
class Places:
    """A rank's part of what lies below HBM: bytes, and bytes a second.

    ``network_rate`` None: the network card of the GPU's data sheet.
    """

    host_bytes: int = 128 * GIB
    host_rate: float = 55e9
    nvme_bytes: int = 1920 * 10**9
    nvme_rate: float = 7e9
    network_bytes: int = 10**14
    network_rate: float | None = None


START_US = {"hbm": 0.0, "host": 10.0, "nvme": 100.0, "network": 50.0}


def tiers(report: Report, gpu: Hardware, places: Places = Places()) -> tuple[Tier, ...]:
    """HBM as this scenario leaves it; the rest as ``places`` says."""
    usual = Places()

    def source(name: str, words: str) -> str:
        kept = all(
            getattr(places, f"{name}_{what}") == getattr(usual, f"{name}_{what}")
            for what in ("bytes", "rate")
        )
        return words if kept else TYPED

    made = [
        Tier(
            "hbm",
            report.fit.budget_bytes,
            gpu.memory_rate.value,
            START_US["hbm"],
            gpu.memory_rate.source,
        ),
        Tier(
            "host",
            places.host_bytes,
            places.host_rate,
            START_US["host"],
            source("host", f"PCIe 5.0 x16, {ASSUMED}"),
        ),
        Tier(
            "nvme",
            places.nvme_bytes,
            places.nvme_rate,
            START_US["nvme"],
            source("nvme", f"one drive a GPU, {ASSUMED}"),
        ),
    ]
    card = gpu.network
    rate = places.network_rate or (card.value if card else None)
    if rate is not None:
        words = TYPED if places.network_rate or card is None else card.source
        made.append(Tier("network", places.network_bytes, rate, START_US["network"], words))
    return tuple(made)


@formula(unit="prefixes", source="whole prefixes that fit", status=Status.ESTIMATE)
def prefixes_held(capacity_bytes: int, prefix_bytes: Number) -> Number:
    """Prefixes of this length that a rank's part of a tier holds."""
    return capacity_bytes // prefix_bytes


@formula(unit="µs", source="a start and the rate of the link", status=Status.ESTIMATE)
def load_us(start_us: float, read_bytes: Number, link_rate: float) -> Number:
    """Time in which one rank loads its part of a prefix; the ranks load side by side."""
    return start_us + 1000000 * read_bytes / link_rate


@formula(unit="µs", source="a prefill of everything, less one behind a hit", status=Status.ESTIMATE)
def skipped_us(whole_us: Number, rest_us: Number) -> Number:
    """Time of computing the prefix: what the request's prefill takes longer without a hit."""
    return whole_us - rest_us


@formula(unit="µs", source="the difference of both times", status=Status.ESTIMATE)
def saved_us(recompute_us: Number, loading_us: Number) -> Number:
    """What loading a prefix saves against computing it (negative: it costs)."""
    return recompute_us - loading_us


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """Loading a prefix of ``tokens`` from one tier, and computing it."""

    tokens: int
    loaded: Item
    recomputed: Item
    saved: Item


@dataclass(frozen=True, slots=True)
class LoadCost:
    """One tier: ``point`` at the asked length, and the shortest prefix worth loading.

    ``break_even`` None: not up to ``MOST_TOKENS``; 1: always.
    """

    tier: Tier
    held: Item
    point: LoadPoint
    break_even: int | None


class Prefixes:
    """Bytes and prefill times of prefixes of one scenario, each length computed once.

    ``new_tokens`` of the request come behind the prefix and are computed in any case.
    """

    def __init__(self, report: Report, gpu: Hardware, new_tokens: int = 1) -> None:
        if not 1 <= new_tokens <= MOST_TOKENS:
            raise CalcError(
                "out_of_range", "new_tokens", given=new_tokens, minimum=1, maximum=MOST_TOKENS
            )
        self.gpu, self.new_tokens = gpu, new_tokens
        self._scenario = replace(
            report.scenario, batch=1, shared_prefix=0, lengths="off", speculative_tokens=0
        )
        self._known: dict[int, tuple[Item, Item]] = {}

    def at(self, tokens: int) -> tuple[Item, Item]:
        """(bytes on the fullest rank, time of computing these tokens)."""
        if tokens not in self._known:
            size = evaluate(replace(self._scenario, context=tokens, prefill_tokens=0))
            longest = tokens + self.new_tokens
            computed = skipped_us.item(
                "storage.recompute",
                whole_us=self._prefill(longest, longest),
                rest_us=self._prefill(longest, self.new_tokens),
            )
            self._known[tokens] = (size.cache.stage.per_request, computed)
        return self._known[tokens]

    def _prefill(self, context: int, new: int) -> Item:
        found = evaluate(replace(self._scenario, context=context, prefill_tokens=new))
        step = times(found, self.gpu).prefill
        assert step is not None
        return step.total

    def point(self, tier: Tier, tokens: int) -> LoadPoint:
        """Both times for one length."""
        size, computing = self.at(tokens)
        loading = load_us.item(
            f"load.{tier.id}", start_us=tier.start_us, read_bytes=size, link_rate=tier.rate
        )
        return LoadPoint(
            tokens,
            loading,
            computing,
            saved_us.item(f"saved.{tier.id}", recompute_us=computing, loading_us=loading),
        )

    def break_even(self, tier: Tier) -> int | None:
        """The shortest prefix from which on loading is faster; found by doubling, then halving."""
        slow, length = 0, 1
        while self.point(tier, length).saved.value <= 0:
            slow, length = length, 2 * length
            if length > MOST_TOKENS:
                return None
        while length - slow > max(1, slow // 256):
            middle = (slow + length) // 2
            if self.point(tier, middle).saved.value > 0:
                length = middle
            else:
                slow = middle
        return length

    def cost(self, tier: Tier, tokens: int) -> LoadCost:
        """One tier at one length."""
        size, _ = self.at(tokens)
        held = prefixes_held.item(
            f"held.{tier.id}", capacity_bytes=tier.capacity_bytes, prefix_bytes=size
        )
        return LoadCost(tier, held, self.point(tier, tokens), self.break_even(tier))


# --- what is written all the time -----------------------------------------------------------------


@formula(unit="B/s", source="every new token is written once", status=Status.ESTIMATE)
def write_rate(
    requests_per_second: float, new_tokens: int, bytes_per_token: Number, snapshots: Number
) -> Number:
    """Steady write traffic of one rank: rows of new tokens in all layers, windows included, and
    snapshots of each request."""
    return requests_per_second * (new_tokens * bytes_per_token + snapshots)


@formula(unit="B", source="snapshots of one request")
def snapshot_bytes(state_bytes: int, checkpoints: Number) -> Number:
    """State snapshots that one request leaves behind on a rank."""
    return state_bytes * checkpoints


def _row_per_token(part: Component) -> Item:
    """What one new token adds to a store on a rank, on average."""
    store = part.store
    key = f"{store.kind}.{store.name}.written"
    if store.tokens_per_row > 1:
        return compressed_per_token.item(
            key, row_bytes=store.bytes, layers=part.layers, compress_ratio=store.tokens_per_row
        )
    return growing_per_token.item(key, row_bytes=store.bytes, layers=part.layers, dcp=store.dcp)


def steady_writes(
    report: Report, requests_per_second: float, new_tokens: int, checkpoints: int
) -> Item:
    """Bytes a second that one rank of the fullest stage writes to storage.

    Every new row is stored once, those of windows and attention chunks too (LMCache stores every
    chunk of every group); an engine that keeps only the last window writes less.
    """
    stage = report.cache.stage
    rows = [part for part in stage.components if part.growth is not Growth.STATE]
    return write_rate.item(
        "storage.write_rate",
        requests_per_second=requests_per_second,
        new_tokens=new_tokens,
        bytes_per_token=total("storage.rows", "B/token", map(_row_per_token, rows)),
        snapshots=snapshot_bytes.item(
            "storage.snapshots", state_bytes=stage.state_per_request, checkpoints=checkpoints
        ),
    )


# --- where a prefix can be found with several replicas --------------------------------------------

MODEL_OF_ROUTING = "each prefix comes u times, a replica keeps what it computed, nothing is evicted"


@formula(unit="share", source=MODEL_OF_ROUTING, status=Status.ESTIMATE)
def hit_rate_aware(uses: Number) -> Number:
    """All requests of a prefix go to one replica: only the first finds nothing."""
    return (uses - 1) / uses


@formula(unit="share", source=MODEL_OF_ROUTING, status=Status.ESTIMATE)
def hit_rate_random(uses: Number, replicas: int) -> Number:
    """Each request goes to any replica: it finds what an earlier one left on the same."""
    return 1 - replicas * (1 - (1 - 1 / replicas) ** uses) / uses


@dataclass(frozen=True, slots=True)
class Routing:
    """Expected shares of requests that find their prefix, over a prefix's ``uses``."""

    replicas: int
    uses: int
    aware: Item
    random: Item


def routing(replicas: int, uses: int) -> Routing:
    """With cache-aware routing and with random routing."""
    for name, value in (("replicas", replicas), ("uses", uses)):
        if not 1 <= value <= 10**6:
            raise CalcError("out_of_range", name, given=value, minimum=1, maximum=10**6)
    return Routing(
        replicas,
        uses,
        hit_rate_aware.item("routing.aware", uses=uses),
        hit_rate_random.item("routing.random", uses=uses, replicas=replicas),
    )

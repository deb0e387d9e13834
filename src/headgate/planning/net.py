"""A problem and a delivery graph as flat arrays, the one form that every kernel works on.

Nodes are places of sites in trees: node i below the number of streams is the source of stream i, the others are its
members, stream after stream. Resources are what traffic shares: the upload of site u is resource u, the download of
site v is n + v, the capacity of link l is 2n + l. A graph is the `parent` array with the sibling lists beside it; all
else in the second half is derived and kept up to date by the kernels, with a journal of what one trial has changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.planning.problem import Problem, Want

F8 = npt.NDArray[np.float64]
I4 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int64]
U1 = npt.NDArray[np.uint8]
U4 = npt.NDArray[np.uint32]

# Places in `Net.rule`: the delay rule and the tolerance of the fixed point. Places in `Net.total`.
BASE, PER_UNIT, MEAN, TOLERANCE = range(4)
SCORE, ZEROS, BANDWIDTH, LOADS, SQUARES = range(5)
# Rows of `Net.work`: the queue of resources, the stack of nodes, the journals of nodes, masks, outs and resources, the
# first waiting node of each depth; the journal of seats, loose nodes, active and doubtful resources, those that a trial
# has touched; who is to get whom as a parent in the next trial.
QUEUE, STACK, NODES, MASKS, OUTS, RESOURCES, BUCKET, SEATS, LOOSE_NODES, ACTIVES, DOUBTS = range(11)
SUSPECTS, CHILDREN, PARENTS = range(11, 14)
# Rows of `Net.plane` and `Net.real`, the reduced graph (`kernel.reduced`): nodes in order, their groups, the group that
# a node's children share; by group the group above and the resources on the link; by resource its number, and back.
ORDER, GROUP, SHARED, UPPER, USES, LOWER, LINK, INDEX, CANDIDATE, START = range(10)
KEPT, BOUND, PASSING, LIMIT, STEP, ASKED = range(6)
# Rows of `Net.path`: by group the group above it and the resources on the links into it.
TOP, SENDER, RECEIVER, WIRE = range(4)
# What a want contributes to the score: its logarithm, itself, whether its contract is met, a soft minimum.
GEOMETRIC, ARITHMETIC, CONTRACTS, MINIMUM = range(4)

LOG_ZERO = -40.0  # what a quality of zero counts as where a single number is needed; exp(-40) is below any template
EXACT = 1e-13  # tolerance of the fixed point where agreement to 1e-9 is promised

_I4, _I8, _F8 = np.int32, np.int64, np.float64
NODE = np.dtype(
    [
        (name, _I4)
        for name in (
            *("site", "stream", "parent", "first", "after", "before", "depth", "old_depth", "waiting", "next", "seat"),
        )
    ]
    # size: bytes/s on the link into the node; out: bytes/s it forwards, both without drops; kept: fraction of its rows
    # that arrive; lag: seconds from the source; score and zeros: what its wants contribute; bulk: see `Member`.
    + [(name, _F8) for name in ("size", "out", "kept", "lag", "score", "zeros", "bulk")]
    + [(name, _F8) for name in ("old_size", "old_out", "old_kept", "old_lag", "old_score", "old_zeros")]
    + [(name, _I8) for name in ("stamp", "stamp_mask", "stamp_out", "want_first", "want_last")],
    align=True,
)
RESOURCE = np.dtype(
    [(name, _F8) for name in ("capacity", "permeable", "old", "step", "fixed")]
    + [(name, _I8) for name in ("stamp", "queued", "state", "first", "last")],
    align=True,
)
# share: 1 / upload, 0 where the upload is unknown; forwarded: bytes/s it forwards without drops.
PLACE = np.dtype(
    [(name, _F8) for name in ("processing", "x", "y", "share", "forwarded")] + [("first", _I8), ("last", _I8)],
    align=True,
)
FLOW = np.dtype([("rate", _F8), ("base", _F8), ("first", _I8), ("last", _I8)], align=True)
WANT = np.dtype([("weight", _F8), ("floor", _F8), ("at", _I8), ("kind", _I8)], align=True)
# Trials by groups. A node's seat among those of its site: its group and its parent's, what it forwards and gets without
# drops, where its slots begin, whether it is loose. A group: who owns it, its slots, whether active resources depend on
# it, what it gets and contributes. A slot: a want as its group values it, see `kernel.grouped`.
SEAT = np.dtype(
    [(name, _F8) for name in ("out", "size")]
    + [(name, _I4) for name in ("group", "above", "old_group", "old_above", "slot", "loose")]
    + [("stamp", _I8)],
    align=True,
)
GROUPING = np.dtype(
    [(name, _I4) for name in ("owner", "first", "last", "inner")]
    + [(name, _I4) for name in ("old_upper", "old_up", "old_down", "old_link")]
    + [(name, _F8) for name in ("kept", "score", "zeros", "old_kept", "old_score", "old_zeros")]
    + [("stamp", _I8)],
    align=True,
)
# The one record of `Net.counter`. How far the journals of a trial have come (its number is `tick`): nodes, resources,
# bit sets, outs, moved nodes; the queue of resources from `head` to `tail`, the depths with waiting nodes. Statistics.
# Settings: whether only given links may be used, how many bytes of a bit set are rows, what is asked for.
# Of trials by groups (`kernel.grouped`): whether they are on, whether all wants are of the template, how many groups,
# active and doubtful resources, loose nodes, noted seats and noted groups there are; how many there were at the start
# of the trial, and when groups were made.
COUNTER = np.dtype(
    [
        (name, _I8)
        for name in (
            *("tick", "noted_nodes", "noted_resources", "noted_masks", "noted_outs", "moved"),
            *("head", "tail", "low", "high"),
            *("rounds", "trials", "fallbacks", "touched", "reduced", "sweeps"),
            *("physical", "row_bytes", "goal"),
            *("grouped", "plain", "groups", "active", "doubtful", "loose", "noted_seats", "noted_groups"),
            *("groups_before", "active_before", "doubtful_before", "loose_before", "groups_made", "active_made"),
        )
    ],
    align=True,
)
SLOT = np.dtype(
    [(name, _F8) for name in ("drop", "weight", "less", "met")] + [("want", _I4), ("node", _I4)], align=True
)


class Net(NamedTuple):
    """Arrays of one problem and one graph. `n` sites, `S` streams, `N` nodes, `R` resources, `B` bytes of a bit set.

    Record arrays keep what is used together side by side, and keep the number of compiled arguments small.
    """

    place: Any  # (n,) PLACE: sites, with the range of their nodes in site_nodes
    site_nodes: I4
    resource: Any  # (R,) RESOURCE
    link: I4  # (n, n) index of a limited link or -1; (0, 0) when no link is limited
    link_ends: I4  # (L, 2)
    delay: F8  # (n, n) or (0, 0)
    flow: Any  # (S,) FLOW, with the range of its member nodes
    weight_table: F8  # (S, Br, 256)
    width_table: F8  # (S, Bc, 256)
    want: Any  # WANT
    want_data: F8
    node: Any  # (N,) NODE
    own: U1  # (N, B) bit sets: rows first, columns after
    mask: U1  # (N, B) of the link into the node
    old_mask: U1
    moved: I4  # (M, 2) nodes of a trial and the parents they had
    work: I4  # (14, max(N, R) + 40)
    total: F8
    old_total: F8
    rule: F8
    counter: Any  # (1,) COUNTER
    plane: I4  # (10, max(N, R) + 40), the reduced graph
    real: F8  # (6, max(N, R) + 40)
    entry_group: I4  # what loads a resource: at most three entries per node (trials by groups: two)
    entry_load: F8
    seat: Any  # (N,) SEAT, in the order of site_nodes
    group: Any  # (4 N + 128,) GROUPING: at most one a node when made, two a node in a trial, some left by others
    path: U4  # (4, 4 N + 128) of the groups; not signed, so that the compiler need not look for negative places
    kept: F8  # (4 N + 128,) the fraction that each group gets, as the sweeps see it
    noted: I4  # (4 N + 128,) the journal of groups
    slot: Any  # (W,) SLOT, group after group
    packed_group: U4  # entries of active resources side by side, as sweeps go through them
    packed_load: F8


class Layout(NamedTuple):
    """Which node stands for whom: by (stream, site) names, and the name of the want behind each want index."""

    nodes: dict[tuple[str, str], int]
    wants: tuple[str, ...]
    relay: npt.NDArray[np.bool_]


def compile_problem(problem: Problem) -> tuple[Net, Layout]:
    """The arrays of a problem with an empty graph: no member has a parent yet."""
    sites, flows = problem.site_index, problem.flow_index
    n, s = len(sites), len(flows)
    by_stream: list[list[tuple[int, int, Any]]] = [[] for _ in range(s)]
    at_root: dict[int, Any] = {}
    for member in problem.members:
        index, place = flows[member.stream], sites[member.site]
        if member.site == problem.flows[index].root:
            at_root[index] = member
        else:
            by_stream[index].append((place, 0, member))
    if problem.relays:
        for index, found in enumerate(by_stream):
            taken = {place for place, _, _ in found} | {sites[problem.flows[index].root]}
            found.extend((sites[name], 1, None) for name in sorted(problem.relays) if sites[name] not in taken)
    total = s + sum(len(found) for found in by_stream)
    bytes_rows = max([1, *(-(-len(flow.universe.weights) // 8) for flow in problem.flows)])
    bytes_columns = max([0, *(-(-len(flow.universe.widths) // 8) for flow in problem.flows)])
    site_of, stream_of = np.zeros(total, np.int32), np.zeros(total, np.int32)
    own = np.zeros((total, bytes_rows + bytes_columns), np.uint8)
    relay, bulk = np.zeros(total, np.bool_), np.ones(total)
    member_first = np.zeros(s + 1, np.int64)
    nodes: dict[tuple[str, str], int] = {}
    wants: list[tuple[int, Any]] = []
    position = s
    for index, flow in enumerate(problem.flows):
        site_of[index], stream_of[index] = sites[flow.root], index
        everything = flow.universe.everything
        own[index] = _bytes(everything.rows, everything.columns, bytes_rows, bytes_columns)
        nodes[flow.name, flow.root] = index
        if index in at_root:
            wants.extend((index, want) for want in at_root[index].wants)
        member_first[index] = position
        for place, relays, member in by_stream[index]:
            site_of[position], stream_of[position], relay[position] = place, index, bool(relays)
            nodes[flow.name, problem.sites[place].name] = position
            if member is not None:
                interest = member.interest
                own[position] = _bytes(interest.rows, interest.columns, bytes_rows, bytes_columns)
                bulk[position] = member.bulk
                wants.extend((position, want) for want in member.wants)
            position += 1
    member_first[s] = position
    wants.sort(key=lambda pair: pair[0])
    resources, link, ends = _resources(problem, sites)
    places = np.zeros(n, PLACE)
    places["processing"] = [site.processing_delay_s for site in problem.sites]
    matrix, points, rule = _delays(problem)
    if len(points):
        places["x"], places["y"] = points.T
    upload = resources["capacity"][:n]
    places["share"] = np.where(np.isfinite(upload) & (upload > 0), 1.0 / np.maximum(upload, 1e-300), 0.0)
    places["last"] = np.cumsum(np.bincount(site_of, minlength=n))
    places["first"] = np.append(0, places["last"][:-1])
    flow_records = np.zeros(s, FLOW)
    flow_records["rate"] = [flow.rate_rows_per_s for flow in problem.flows]
    flow_records["base"] = [flow.universe.base_bytes for flow in problem.flows]
    flow_records["first"], flow_records["last"] = member_first[:-1], member_first[1:]
    node = np.zeros(total, NODE)
    node["site"], node["stream"], node["bulk"] = site_of, stream_of, bulk
    for name in ("parent", "first", "after", "before"):
        node[name] = -1
    node["kept"][:s] = 1.0
    node["want_last"] = np.cumsum(np.bincount(np.array([at for at, _ in wants], np.int64), minlength=total))
    node["want_first"] = np.append(0, node["want_last"][:-1])
    want_records, want_data = _wants([want for _, want in wants])
    counter = np.zeros(1, COUNTER)
    counter["physical"], counter["row_bytes"] = problem.physical, bytes_rows
    work = np.zeros((14, max(total, len(resources)) + 40), np.int32)
    work[BUCKET] = -1
    site_nodes = np.argsort(site_of, kind="stable").astype(np.int32)
    node["seat"][site_nodes] = np.arange(total)
    groups = 4 * total + 128
    weights, widths = _tables(problem, bytes_rows, bytes_columns)
    net = Net(
        place=places,
        site_nodes=site_nodes,
        resource=resources,
        link=link,
        link_ends=ends,
        delay=matrix,
        flow=flow_records,
        weight_table=weights,
        width_table=widths,
        want=want_records,
        want_data=want_data,
        node=node,
        own=own,
        mask=own.copy(),
        old_mask=own.copy(),
        moved=np.zeros((total + 64, 2), np.int32),
        work=work,
        total=np.zeros(5),
        old_total=np.zeros(5),
        rule=rule,
        counter=counter,
        plane=np.zeros((10, work.shape[1]), np.int32),
        real=np.zeros((6, work.shape[1])),
        entry_group=np.zeros(3 * total + 1, np.int32),
        entry_load=np.zeros(3 * total + 1),
        seat=np.zeros(total, SEAT),
        group=np.zeros(groups, GROUPING),
        path=np.zeros((4, groups), np.uint32),
        kept=np.zeros(groups),
        noted=np.zeros(groups, np.int32),
        slot=np.zeros(len(want_records), SLOT),
        packed_group=np.zeros(3 * total + 1, np.uint32),
        packed_load=np.zeros(3 * total + 1),
    )
    return net, Layout(nodes, tuple(want.name for _, want in wants), relay)


def _bytes(rows: int, columns: int, bytes_rows: int, bytes_columns: int) -> U1:
    return np.frombuffer(rows.to_bytes(bytes_rows, "little") + columns.to_bytes(bytes_columns, "little"), np.uint8)


def _tables(problem: Problem, bytes_rows: int, bytes_columns: int) -> tuple[F8, F8]:
    """For each stream and byte of a bit set, the weight of each of its 256 values."""
    bits = ((np.arange(256)[:, None] >> np.arange(8)) & 1).astype(np.float64)
    tables = []
    for count, name in ((bytes_rows, "weights"), (bytes_columns, "widths")):
        table = np.zeros((len(problem.flows), count, 256))
        for index, flow in enumerate(problem.flows):
            values = np.zeros(count * 8)
            given = getattr(flow.universe, name)
            values[: len(given)] = given
            table[index] = values.reshape(count, 8) @ bits.T
        tables.append(table)
    return tables[0], tables[1]


def _wants(wants: list[Want]) -> tuple[npt.NDArray[np.void], F8]:
    records, data = np.zeros(len(wants), WANT), list[float]()
    places, kinds = list[int](), list[int]()
    for want in wants:
        table = want.quality.table
        places.append(len(data))
        kinds.append(0 if table is None else 1 if table.kind == "steps" else 2)
        if table is None:
            data += [want.quality.drop, want.quality.delay_s]
        else:
            data += [len(table.drops), len(table.delays_s), *table.drops, *table.delays_s]
            data += [value for row in table.values for value in row]
    floors = [want.quality.at_least for want in wants]
    records["weight"] = [want.weight for want in wants]
    records["floor"] = [-1.0 if floor is None else floor for floor in floors]
    records["at"], records["kind"] = places, kinds
    return records, np.array(data, np.float64)


def _resources(problem: Problem, sites: dict[str, int]) -> tuple[npt.NDArray[np.void], I4, I4]:
    """Uploads, downloads and limited links, and which link joins which sites."""
    pairs = sorted(problem.capacities.items(), key=lambda item: sorted(item[0]))
    limits = [site.upload_bytes_per_s for site in problem.sites]
    limits += [site.download_bytes_per_s for site in problem.sites]
    limits += [capacity for _, capacity in pairs]
    resources = np.zeros(len(limits), RESOURCE)
    resources["capacity"] = [np.inf if limit is None else limit for limit in limits]
    resources["permeable"] = 1.0
    if not pairs and not problem.physical:
        return resources, np.zeros((0, 0), np.int32), np.zeros((0, 2), np.int32)
    link = np.full((len(sites), len(sites)), -1, np.int32)
    ends = np.array([[sites[name] for name in sorted(pair)] for pair, _ in pairs], np.int32).reshape(-1, 2)
    link[ends[:, 0], ends[:, 1]] = link[ends[:, 1], ends[:, 0]] = np.arange(len(pairs), dtype=np.int32)
    link[[sites[name] for name in sorted(problem.leaves)]] = -1  # they are sent to, and send nothing
    return resources, link, ends


def _delays(problem: Problem) -> tuple[F8, F8, F8]:
    """Delay matrix, positions, and the rule: base, per unit, mean between two sites, tolerance."""
    delays, n = problem.delays, len(problem.sites)
    matrix, points, mean = np.zeros((0, 0)), np.zeros((0, 2)), delays.base_s
    if delays.matrix_s is not None:
        matrix = np.ascontiguousarray(delays.matrix_s, np.float64)
        mean = float((matrix.sum() - np.trace(matrix)) / max(1, n * (n - 1)))
    elif delays.positions is not None:
        points = np.ascontiguousarray(delays.positions, np.float64)
        some = points[:: max(1, n // 500)]
        apart = np.hypot(*(some[:, None] - some[None]).transpose(2, 0, 1))
        mean = delays.base_s + delays.per_unit_s * float(apart.sum() / max(1, len(some) * (len(some) - 1)))
    per_unit = delays.per_unit_s if len(points) else 0.0
    return matrix, points, np.array([delays.base_s, per_unit, mean, EXACT])


def scalar_of(net: Net, wish: F8) -> tuple[float, float]:
    """Zero qualities (negative) and the weighted score of an evaluated graph, to be compared in that order."""
    sites = len(net.place)
    variance = float(net.total[SQUARES] / sites - (net.total[LOADS] / sites) ** 2)
    score = float(wish[2] * net.total[SCORE] - wish[0] * net.total[BANDWIDTH] - wish[1] * variance)
    return (-round(float(net.total[ZEROS]), 9) if net.counter[0]["goal"] == GEOMETRIC else 0.0, score)

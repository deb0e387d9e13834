"""The algebra against brute force: generated filters over rows that witness every boundary the filters can have.

Constants come from a small grid and the rows hold every grid value, a value between any two and beyond both ends, NaN,
infinities, -0.0, every kind of string around the prefixes, and NULL. A relation between two filters holds exactly when
it holds on those rows, so masks over them decide every question, one array operation for thousands of pairs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.filters import Filter, parse_filter
from headgate.filters.algebra import NormalForm, normal_form, simplify
from headgate.filters.algebra.express import boxes_expression
from headgate.filters.algebra.relate import forms_cover, forms_intersect, merge_forms
from headgate.matching.compiled.boxes import Boxes
from headgate.model import Schema

SCHEMA = Schema.of({"x": "double", "n": "int", "s": "string"})
_X = [None, float("-inf"), -1.0, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, float("inf"), float("nan")]
_N = [None, -1, 0, 1, 2, 3, 4]
_S = [None, "", "A", "a", "aa", "ab", "abc", "ac", "b", "ba", "c", "ü"]
_COMPARISONS = ["=", "!=", "<", "<=", ">", ">=", "<=>"]
_TEXTS = ["s LIKE 'a%'", "s LIKE 'ab%'", "s NOT LIKE 'a%'", "s IN ('a', 'b')", "s IS NOT NULL", "startswith(s, 'ab')"]
_RESIDUALS = ["s LIKE 'a_%'", "x + n > 2", "length(s) = 1", "s LIKE '%b'", "n % 2 = 0", "x > n"]

PROFILES = 100_000
Mask = npt.NDArray[np.bool_]


def witnesses() -> pa.RecordBatch:
    """Rows that tell any two different filters of `generate` apart."""
    x, n, s = zip(*product(_X, _N, _S), strict=True)
    return pa.record_batch(
        {"x": pa.array(x, pa.float64()), "n": pa.array(n, pa.int32()), "s": pa.array(s, pa.string())}
    )


def generate(rng: random.Random, depth: int = 3, residuals: float = 0.05) -> str:
    """A random condition over the witnesses' columns."""
    if depth > 0 and rng.random() < 0.75:
        if rng.random() < 0.15:
            return f"NOT ({generate(rng, depth - 1, residuals)})"
        joiner = rng.choice([" AND ", " OR "])
        return "(" + joiner.join(generate(rng, depth - 1, residuals) for _ in range(rng.randint(2, 3))) + ")"
    if rng.random() < residuals:
        return rng.choice(_RESIDUALS)
    if rng.random() < 0.02:
        return rng.choice(["TRUE", "FALSE", "NULL", "1 < 2"])
    return rng.choice([_x, _n, _s])(rng)


def _x(rng: random.Random) -> str:
    op, value = rng.choice(_COMPARISONS), rng.choice(["0", "1", "2.0", "3D", "1e0"])
    return rng.choice([f"x {op} {value}", f"{value} {op} x", f"x BETWEEN {value} AND 3", "x IS NULL", "isnan(x)"])


def _n(rng: random.Random) -> str:
    op, value = rng.choice(_COMPARISONS), rng.choice(["0", "1", "2", "3", "1.5", "2.0D", "NULL"])
    return rng.choice([f"n {op} {value}", f"n {op} {value}", "n IN (1, 3)", "n NOT IN (0, 2)", "n IN (1, NULL)"])


def _s(rng: random.Random) -> str:
    op, value = rng.choice(_COMPARISONS), rng.choice(["'a'", "'ab'", "'b'", "''"])
    return rng.choice([f"s {op} {value}", f"s {op} {value}", *_TEXTS])


@dataclass(frozen=True, slots=True)
class Pool:
    """Generated filters with their normal forms and their masks over the witnesses."""

    rows: pa.RecordBatch
    filters: tuple[Filter, ...]
    forms: tuple[NormalForm, ...]
    masks: Mask


def make_pool(size: int, seed: int) -> Pool:
    """A seeded pool."""
    rng = random.Random(seed)
    rows = witnesses()
    filters = tuple(parse_filter(generate(rng, rng.randint(0, 3)), SCHEMA) for _ in range(size))
    masks = np.stack([each.evaluate(rows) for each in filters])
    return Pool(rows, filters, tuple(normal_form(each) for each in filters), masks)


def check(pool: Pool, pairs: int, seed: int) -> dict[str, int]:
    """Counts of wrong answers over random pairs, all of which must be 0, and of the interesting cases among them."""
    rng = np.random.default_rng(seed)
    one, other = rng.integers(0, len(pool.filters), (2, pairs))
    exact = np.array([form.exact for form in pool.forms])
    both = exact[one] & exact[other]
    truth = np.empty((2, pairs), bool)
    for start in range(0, pairs, 10_000):
        block = slice(start, start + 10_000)
        a, b = pool.masks[one[block]], pool.masks[other[block]]
        truth[0, block] = ~(b & ~a).any(axis=1)
        truth[1, block] = (a & b).any(axis=1)
    said = np.array([forms_cover(pool.forms[i], pool.forms[j]) for i, j in zip(one, other, strict=True)])
    meet = np.array([forms_intersect(pool.forms[i], pool.forms[j]) for i, j in zip(one, other, strict=True)])
    merged = [merge_forms((pool.forms[i], pool.forms[j])) for i, j in zip(one, other, strict=True)]
    distinct = {each: index for index, each in enumerate(dict.fromkeys(merged))}
    unions = np.stack([each.evaluate(pool.rows) for each in distinct])
    answer = np.array([distinct[each] for each in merged])
    wrong_union = same_as_one = 0
    for start in range(0, pairs, 10_000):
        block = slice(start, start + 10_000)
        expected = pool.masks[one[block]] | pool.masks[other[block]]
        wrong_union += int((unions[answer[block]] != expected).any(axis=1).sum())
        unchanged = (unions[answer[block]] == pool.masks[one[block]]).all(axis=1)
        same_as_one += int(((unchanged != said[block]) & both[block]).sum())
    return {
        "pairs": pairs,
        "covers_false_yes": int((said & ~truth[0]).sum()),
        "covers_missed_exact": int((~said & truth[0] & both).sum()),
        "intersects_false_no": int((~meet & truth[1]).sum()),
        "intersects_wrong_exact": int((meet & ~truth[1] & both).sum()),
        "merge_wrong": wrong_union,
        "merge_disagrees_with_covers": same_as_one,
        "covers_yes": int(said.sum()),
        "exact_pairs": int(both.sum()),
        **_check_single(pool),
        **_check_transitive(pool, said, one, other),
    }


def _check_single(pool: Pool) -> dict[str, int]:
    """Normal forms and simplified filters must match exactly the filter's own rows."""
    form_wrong = simplify_wrong = 0
    for index, form in enumerate(pool.forms):
        again = Filter.of(boxes_expression(form.boxes, form.attributes)).evaluate(pool.rows)
        form_wrong += int((again != pool.masks[index]).any())
        simple = simplify(pool.filters[index])
        simplify_wrong += int((simple.evaluate(pool.rows) != pool.masks[index]).any())
    return {"normal_form_wrong": form_wrong, "simplify_wrong": simplify_wrong}


def _check_transitive(pool: Pool, said: Mask, one: npt.NDArray[Any], other: npt.NDArray[Any]) -> dict[str, int]:
    """Where a covers b and b covers c, a must cover c if all are exact."""
    below: dict[int, list[int]] = {}
    for i, j, yes in zip(one.tolist(), other.tolist(), said.tolist(), strict=True):
        if yes and i != j:
            below.setdefault(i, []).append(j)
    wrong = checked = 0
    for i, found in below.items():
        for j in found[:3]:
            for k in below.get(j, [])[:3]:
                if pool.forms[i].exact and pool.forms[j].exact and pool.forms[k].exact:
                    checked += 1
                    wrong += not forms_cover(pool.forms[i], pool.forms[k])
    return {"transitivity_wrong": wrong, "transitivity_checked": checked}


FAULTS = (
    "covers_false_yes",
    "covers_missed_exact",
    "intersects_false_no",
    "intersects_wrong_exact",
    "merge_wrong",
    "merge_disagrees_with_covers",
    "normal_form_wrong",
    "simplify_wrong",
    "transitivity_wrong",
)


def refusal_times() -> dict[str, float]:
    """Seconds that hostile texts and ranges take to be refused, best of three; one that is not refused is infinite."""
    texts: dict[str, str | bytes] = {
        "10,000 nested parentheses": "(" * 10_000 + "n = 1" + ")" * 10_000,
        "a million-way OR": " OR ".join(["n = 1"] * 1_000_000),
        "20,000 values in a list": "n IN (" + ", ".join(map(str, range(20_000))) + ")",
        "bad UTF-8": b"s = '\xff'",
        "a lone surrogate": "s = '\ud800'",
        "2,000 chained additions": "n = 0" + " + 1" * 2_000,
        "unknown column": "m = 1",
        "unknown context value": "n = $m",
        "a regular expression that explodes": "s RLIKE '((a{100}){100}){100}'",
    }
    tasks: dict[str, Callable[[], object]] = {
        name: partial(parse_filter, cast("str", text), SCHEMA) for name, text in texts.items()
    }
    ids, lows = np.arange(PROFILES, dtype=np.uint32), np.zeros((PROFILES, 8))
    for name, bad in (("a NaN bound", float("nan")), ("a reversed range", 2.0)):
        worst = lows.copy()
        worst[-1, -1] = bad
        tasks[f"{name} among {PROFILES:,} profiles"] = partial(Boxes.of_floats, ids, worst, lows + 1.0)
    return {name: _refusal_s(task) for name, task in tasks.items()}


def _refusal_s(task: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        try:
            task()
        except HeadgateError:
            best = min(best, time.perf_counter() - start)
    return best


def run(pairs: int = 100_000, pool: int = 4_000, seed: int = 1) -> dict[str, Any]:
    """Check all pairs, print the counts, and time covering against evaluating both filters on the rows."""
    begin = time.perf_counter()
    made = make_pool(pool, seed)
    ready = time.perf_counter()
    counts = check(made, pairs, seed)
    done = time.perf_counter()
    rng = np.random.default_rng(seed)
    sample = rng.integers(0, pool, (2_000, 2)).tolist()
    start = time.perf_counter()
    for i, j in sample:
        forms_cover(made.forms[i], made.forms[j])
    algebra_s = (time.perf_counter() - start) / len(sample)
    start = time.perf_counter()
    for i, j in sample[:400]:
        bool((made.filters[j].evaluate(made.rows) & ~made.filters[i].evaluate(made.rows)).any())
    brute_s = (time.perf_counter() - start) / 400
    refusals = refusal_times()
    for name, count in counts.items():
        print(f"{name:<28} {count:>10,}{'   WRONG' if name in FAULTS and count else ''}")
    for name, spent_s in refusals.items():
        print(f"refused: {name:<40} {spent_s * 1e3:>8.2f} ms")
    accepted = [name for name, spent_s in refusals.items() if spent_s == float("inf")]
    if accepted:
        raise HeadgateError(f"not refused: {', '.join(accepted)}", hint="limits are in headgate.filters.limits")
    faults = sum(counts[name] for name in FAULTS)
    if faults:
        raise HeadgateError(f"{faults} answers of the algebra are wrong", hint=f"run again with seed={seed}")
    return {
        "seed": seed,
        "filters": pool,
        **counts,
        "faults": faults,
        "slowest_refusal_ms": round(max(refusals.values()) * 1e3, 2),
        "pool_s": round(ready - begin, 2),
        "check_s": round(done - ready, 2),
        "covers_us": round(algebra_s * 1e6, 2),
        "covers_vs_brute_force": round(brute_s / algebra_s, 1),
    }

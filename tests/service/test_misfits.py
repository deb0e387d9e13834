"""Every way in which stored state can fail to fit together, as values: no server, no database."""

from dataclasses import replace

import pytest

from headgate.fabric import LogState
from headgate.service.identity import Checkpoint, IdentityError, IdentitySurvey, misfits
from headgate.wire.identity import DEPLOYMENT_KEY, INCARNATION_KEY, Identity, Incarnation, Run, joined_runs, overtaken
from headgate.wire.logs import Logs

LOGS = Logs()
ME, OTHER = "d0", "d1"


def info(name: str, last: int = 10, owner: str = ME, **marks: str) -> LogState:
    return LogState(name, {DEPLOYMENT_KEY: owner, **marks}, last, last)


GOOD = IdentitySurvey(
    logs=LOGS,
    place="catalog.db",
    revision=3,
    identity=Identity(ME, "m3", 2, 2, {"one": Incarnation("i1"), "two": Incarnation("i2")}),
    witness={"HG_STATE": 10, "HG_ROOT_one": 10, "HG_INBOX_a": 10},
    infos={
        "HG_STATE": info("HG_STATE"),
        "HG_TABLES": info("HG_TABLES"),
        "HG_INBOX_a": info("HG_INBOX_a"),
        "HG_ROOT_one": info("HG_ROOT_one", **{INCARNATION_KEY: "i1"}),
        "HG_ROOT_two": info("HG_ROOT_two", **{INCARNATION_KEY: "i2"}),
    },
    published=3,
    published_mark="m3",
    known_mark="m3",
    committed=frozenset({"one"}),
    checkpoints={"one": Checkpoint(ME, "i1"), "two": Checkpoint(ME, "i2")},
)
FRESH = IdentitySurvey(LOGS, "catalog.db", 0, Identity(ME), {}, {})


def without(*names: str) -> dict[str, LogState]:
    return {name: each for name, each in GOOD.infos.items() if name not in names}


def test_what_fits_and_what_is_new_is_accepted() -> None:
    assert misfits(GOOD) == []
    assert misfits(FRESH) == []
    interrupted = replace(FRESH, infos={"HG_ROOT_one": info("HG_ROOT_one")}, checkpoints={"one": Checkpoint(ME, "i1")})
    assert misfits(interrupted) == []  # a first start that was killed after it had made a log


@pytest.mark.parametrize("ahead", [0, 1, 1_000_000])
def test_logs_may_have_got_further_than_they_were_seen(ahead: int) -> None:
    infos = {**GOOD.infos, "HG_STATE": info("HG_STATE", 10 + ahead)}
    assert misfits(replace(GOOD, infos=infos)) == []


CASES: list[tuple[str, IdentitySurvey, str, frozenset[str] | None, bool]] = [
    ("store gone", replace(GOOD, infos={}), "the NATS store is gone", None, True),
    (
        "one root log gone",
        replace(GOOD, infos=without("HG_ROOT_one")),
        "HG_ROOT_one is gone; its last message was 10 or later",
        frozenset({"one"}),
        True,
    ),
    (
        "a root log that was never seen is gone",
        replace(GOOD, infos=without("HG_ROOT_two")),
        "HG_ROOT_two is gone",
        frozenset({"two"}),
        True,
    ),
    ("an inbox log gone", replace(GOOD, infos=without("HG_INBOX_a")), "HG_INBOX_a is gone", None, True),
    (
        "an older log",
        replace(GOOD, infos={**GOOD.infos, "HG_STATE": info("HG_STATE", 9)}),
        "HG_STATE ends at message 9, and has been seen at 10",
        None,
        True,
    ),
    (
        "another incarnation",
        replace(GOOD, infos={**GOOD.infos, "HG_ROOT_one": info("HG_ROOT_one", **{INCARNATION_KEY: "i0"})}),
        "is of incarnation i0 of the stream 'one', and the catalog knows incarnation 1 (i1)",
        frozenset({"one"}),
        True,
    ),
    (
        "messages lost by the server",
        replace(GOOD, infos={**GOOD.infos, "HG_ROOT_two": replace(GOOD.infos["HG_ROOT_two"], lost=(4, 5))}),
        "HG_ROOT_two is damaged: the server lost its messages 4, 5",
        frozenset({"two"}),
        True,
    ),
    (
        "a damaged manifest",
        replace(GOOD, damaged={"HG_ROOT_one": ("hg.root.one.commit",)}),
        "the last message of hg.root.one.commit cannot be read",
        frozenset({"one"}),
        True,
    ),
    ("used apart", replace(GOOD, apart=True), "each started without the other", None, True),
    (
        "an unreadable revision",
        replace(GOOD, unreadable="HG_TABLES, message 7: no"),
        "HG_TABLES, message 7",
        None,
        True,
    ),
    (
        "an older catalog",
        replace(GOOD, revision=2),
        "revision 3 is in force in NATS: the catalog is older",
        None,
        False,
    ),
    ("a forked catalog", replace(GOOD, published_mark="x"), "is not the one that is in NATS", None, False),
    (
        "a stranger's store",
        replace(GOOD, infos={name: replace(each, marks={DEPLOYMENT_KEY: OTHER}) for name, each in GOOD.infos.items()}),
        f"NATS holds logs of the deployment {OTHER}",
        None,
        False,
    ),
    (
        "a log of nobody",
        replace(GOOD, infos={**GOOD.infos, "HG_SITE_x": LogState("HG_SITE_x", {}, 1, 1)}),
        "of no known deployment",
        None,
        False,
    ),
    ("the catalog gone", replace(FRESH, infos={"HG_STATE": info("HG_STATE", owner=OTHER)}), "is empty", None, False),
]


@pytest.mark.parametrize(
    ("found", "text", "streams", "acceptable"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_each_misfit_is_named(
    found: IdentitySurvey, text: str, streams: frozenset[str] | None, acceptable: bool
) -> None:
    (wrong,) = misfits(found)
    assert text in wrong.text
    assert (wrong.streams, wrong.acceptable, wrong.loses_rows) == (streams, acceptable, True)
    assert ("--accept-loss" in str(IdentityError([wrong]))) == acceptable


@pytest.mark.parametrize(
    ("checkpoints", "text"),
    [
        ({"two": Checkpoint(ME, "i2")}, "the checkpoint of the stream 'one' is gone"),
        ({**GOOD.checkpoints, "one": Checkpoint(OTHER, "i9")}, "is of incarnation i9 of deployment d1"),
        ({**GOOD.checkpoints, "one": Checkpoint(ME, "i0")}, "is of incarnation i0 of deployment d0"),
        ({**GOOD.checkpoints, "one": Checkpoint()}, "is of no known deployment"),
    ],
)
def test_a_checkpoint_alone_loses_no_rows(checkpoints: dict[str, Checkpoint], text: str) -> None:
    (wrong,) = misfits(replace(GOOD, checkpoints=checkpoints))
    assert text in wrong.text
    assert wrong.checkpoint_only
    assert not wrong.loses_rows


def test_a_checkpoint_that_is_left_of_everything_is_refused() -> None:
    (wrong,) = misfits(replace(FRESH, checkpoints={"one": Checkpoint(OTHER, "i1")}))
    assert "has no rows of it" in wrong.text


def test_a_damaged_value_gives_up_that_value_only() -> None:
    (wrong,) = misfits(replace(GOOD, damaged={"HG_STATE": ("hg.ack.1",)}))
    assert wrong.values == ("hg.ack.1",)
    assert not wrong.loses_rows


def test_a_position_holds_up_to_where_each_later_run_began() -> None:
    runs = [Run("a", {}), Run("b", {"s": 10}), Run("c", {"s": 10})]
    for mark, fits in ((9, True), (10, True), (11, False)):
        assert (overtaken("a", "s", mark, runs, 99) is None) == fits
    assert overtaken("c", "s", 99, runs, 99) is None
    assert overtaken("c", "s", 100, runs, 99) == "it lies at 100, and the stream ends at 99"
    assert joined_runs(runs[:2], runs) == runs
    assert joined_runs(runs, [Run("a", {}), Run("x", {})]) is None

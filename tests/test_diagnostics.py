"""Records of a running deployment: named for site and stream, as text or JSON, from a level on, without passwords."""

from __future__ import annotations

import ast
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate import diagnostics
from headgate.cli.app import main
from headgate.diagnostics import announce, configure, noted, site_log, stream_log
from headgate.errors import HeadgateError
from tests.sources import parsed

SOURCE = Path(__file__).parents[1] / "src" / "headgate"


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    handlers, level, propagate = list(diagnostics.ROOT.handlers), diagnostics.ROOT.level, diagnostics.ROOT.propagate
    yield
    diagnostics.ROOT.handlers[:], diagnostics.ROOT.propagate = handlers, propagate
    diagnostics.ROOT.setLevel(level)


def test_json_lines_carry_site_and_stream_and_no_password() -> None:
    to = io.StringIO()
    configure("info", "json", to)
    site_log("paris.7").warning("no answer of %s", "nats://me:s3cret@host")
    stream_log("fleet").info("committed", extra={"site": "root"})
    stream_log("fleet").debug("below the level")
    announce("up")
    first, second, third = map(json.loads, to.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "warning",
        "logger": "headgate.relay.paris_7",
        "message": "no answer of nats://me:***@host",
        "site": "paris.7",
    }
    assert (second["stream"], second["site"], second["logger"]) == ("fleet", "root", "headgate.stream.fleet")
    assert (third["message"], third["logger"]) == ("up", "headgate.service")


def test_text_lines_say_when_what_and_who_and_show_a_traceback_where_asked() -> None:
    to = io.StringIO()
    configure("warning", "text", to)
    try:
        int("postgresql://me:s3cret@db")
    except ValueError:
        stream_log("fleet").exception("the query has stopped")
    stream_log("fleet").info("below the level")
    first, *rest = to.getvalue().splitlines()
    assert first.split(" ", 2)[2] == "ERROR headgate.stream.fleet: the query has stopped"
    assert rest[0].startswith("Traceback")
    assert rest[-1].endswith("'postgresql://me:***@db'")


def test_what_is_survived_leaves_a_record_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "headgate")
    with noted(diagnostics.SERVICE, "the books were not stored", HeadgateError):
        raise HeadgateError("NATS is away", hint="wait")
    assert [each.getMessage() for each in caplog.records] == ["the books were not stored: NATS is away (wait)"]
    with pytest.raises(KeyError), noted(diagnostics.SERVICE, "nothing", ValueError):
        raise KeyError("x")
    assert len(caplog.records) == 1


@pytest.mark.parametrize(("level", "form", "said"), [("warn", "text", "warning"), ("info", "jsn", "json")])
def test_a_wrong_word_is_refused_by_name(level: str, form: str, said: str) -> None:
    with pytest.raises(HeadgateError, match=f"did you mean '{said}'"):
        configure(level, form)


def test_an_error_that_ends_the_program_is_a_json_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing.yaml")
    for form, begins in (("text", "headgate: "), ("json", "{")):
        monkeypatch.setattr("sys.argv", ["headgate", "up", missing, "--log-format", form])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr().err
        assert end.value.code == 2
        assert said.startswith(begins)
    assert missing in json.loads(said)["message"]


# Waiting that ends by a time or by a cancellation that was asked for is no error.
QUIET = {"TimeoutError", "asyncio.CancelledError"}
# A closed event loop has nobody to tell; a directory that is there is looked at; a temporary file may be gone; what
# verify cannot read it has named before.
HARMLESS = {"fabric/crew.py", "pipeline/java.py", "private.py", "service/verifying.py"}


def test_no_exception_is_suppressed_without_a_record() -> None:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("suppress", "contextlib.suppress"):
                if {ast.unparse(each) for each in node.args} - QUIET and name not in HARMLESS:
                    found.append(f"{name}:{node.lineno} {ast.unparse(node)}")
            elif isinstance(node, ast.ExceptHandler) and isinstance(node.body[0], ast.Pass):
                found.append(f"{name}:{node.lineno} except ...: pass")
    assert found == []

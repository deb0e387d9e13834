"""`headgate plan`: trees, reasons, questions, comparison, drawing, and judging plans of any origin."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from headgate.cli.groups import Program
from headgate.cli.plan import register
from headgate.errors import HeadgateError
from headgate.planning import measure
from headgate.planning.construct import construct
from headgate.planning.document import parse_plan, parse_problem, plan_document, problem_document
from headgate.planning.generate import Workload, generate
from headgate.planning.graph import Graph

from .oracle import bulky

FILE = """
sites:
  oslo: {upload: 20 kbit/s}
  paris: {upload: 1 Mbit/s}
  lyon:
links: {default_delay: 30 ms}
streams:
  wind: {root: oslo, schema: {station: string, speed: double}, rate: 100/s, source: {format: json}}
subscriptions:
  all: {stream: wind, site: paris, quality: {drop: 0.2, delay: 1 s, at_least: 0.9}}
  strong: {stream: wind, site: lyon, where: speed > 10, quality: timely}
"""


@pytest.fixture
def run(tmp_path, monkeypatch):

    app = Program()
    register(app)
    app.command("other")(lambda: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headgate.yaml").write_text(FILE)

    def call(*words, code=0):
        result = CliRunner().invoke(app, ["plan", *words])
        if isinstance(result.exception, HeadgateError):
            raise result.exception
        assert result.exit_code == code, result.output
        return result.output

    return call


def test_trees_qualities_and_what_binds(run):
    text = run("headgate.yaml", "--svg", "plan.svg")
    assert "wind: oslo" in text
    assert "└ paris" in text
    assert "upload of oslo" in text
    assert "contract broken: all" in text


def test_json_and_the_drawing(run, tmp_path):
    found = json.loads(run("headgate.yaml", "--json", "--svg", "plan.svg"))
    assert set(found["subscriptions"]) == {"all", "strong"}
    assert found["subscriptions"]["all"]["met"] is False
    drawing = (tmp_path / "plan.svg").read_text()
    assert drawing.startswith("<svg")
    assert "lyon" in drawing


UNRATED = FILE.replace("rate: 100/s, ", "")


def test_a_rate_that_nobody_declared_is_unknown(run, tmp_path):
    (tmp_path / "unrated.yaml").write_text(UNRATED)
    text = run("unrated.yaml", "--svg", "plan.svg")
    assert "the rate of wind is unknown" in text
    assert "contract holds" not in text
    assert text.count("unknown") >= 5  # the sentence, drop and quality of two subscriptions
    assert "rate unknown" in (tmp_path / "plan.svg").read_text()
    found = json.loads(run("unrated.yaml", "--json"))
    assert found["rates_unknown"] == ["wind"]
    assert {(each["drop"], each["quality"], each["met"]) for each in found["subscriptions"].values()} == {(None,) * 3}
    asked = json.loads(run("unrated.yaml", "--rate", "wind=100/s", "--json"))
    assert asked == json.loads(run("headgate.yaml", "--json"))
    with pytest.raises(HeadgateError, match="STREAM=RATE"):
        run("unrated.yaml", "--rate", "wind")


@pytest.mark.slow
def test_a_plan_keeps_to_the_terms_of_the_file(run, tmp_path):
    (tmp_path / "flat.yaml").write_text(FILE + 'constraints: ["hops <= 1"]\n')
    text = run("flat.yaml", "--algorithm", "chain")
    assert "constraint `hops <= 1` holds" in text
    (tmp_path / "chain.yaml").write_text(FILE + 'constraints: ["hops <= 1", "fanout <= 1"]\n')
    with pytest.raises(HeadgateError, match="alone it could be kept"):
        run("chain.yaml")
    (tmp_path / "given.yaml").write_text(
        FILE + 'constraints: ["hops <= 1"]\nplan: {wind: {paris: oslo, lyon: paris}}\n'
    )
    assert "constraint `hops <= 1` is missed: lyon has 2" in run("given.yaml")


def test_subscriptions_that_go_with_a_site_are_named(run):
    text = run("headgate.yaml", "--what-if", "without site lyon")
    assert "1 subscription goes with it and is not counted any more: strong" in text
    found = json.loads(run("headgate.yaml", "--what-if", "without site lyon", "--json"))
    assert found["subscriptions_gone"] == ["strong"]
    assert json.loads(run("headgate.yaml", "--json"))["subscriptions_gone"] == []


def _edges(drawing):
    """Points along every link with half of its width, from the path's cubic and its straight end."""
    for path in re.finditer(r'd="M([\d.]+),([\d.]+) C([\d.]+),[\d.]+ [\d.]+,([\d.]+) ([\d.]+),[\d.]+ H([\d.]+)".*?'
                            r'stroke-width="([\d.]+)"', drawing):  # fmt: skip
        x, y, middle, y2, bend, end, stroke = map(float, path.groups())
        at = np.linspace(0, 1, 60)
        curve_x = (1 - at) ** 3 * x + 3 * at * (1 - at) * middle + at**3 * bend
        curve_y = y + (3 * at**2 - 2 * at**3) * (y2 - y)
        straight = np.linspace(bend, end, 40)
        yield np.r_[curve_x, straight], np.r_[curve_y, np.full(40, y2)], stroke / 2


def test_no_label_lies_on_a_link(run, tmp_path):
    sites = [f"site-{number}" for number in range(12)]
    document = {
        "sites": {"root": {"upload": "9 Mbit/s"}, **{name: {"upload": "9 Mbit/s"} for name in sites}},
        "streams": {"wind": {"root": "root", "schema": {"v": "double"}, "rate": "900/s", "source": {"format": "json"}}},
        "subscriptions": {f"at-{name}": {"site": name, "stream": "wind"} for name in sites},
        "plan": {"wind": {name: ("root", *sites)[max(0, (number + 1) // 4)] for number, name in enumerate(sites)}},
    }
    (tmp_path / "many.yaml").write_text(json.dumps(document))
    run("many.yaml", "--svg", "many.svg")
    drawing = (tmp_path / "many.svg").read_text()
    edges = list(_edges(drawing))
    texts = re.findall(
        r'<text x="([\d.]+)" text-anchor="end" y="([\d.]+)"(?: fill="#555" font-size="(9)")?>(.*?)<', drawing
    )
    assert len(edges) == 12
    assert len(texts) == 25
    for right, base, small, text in texts:
        size = 9 if small else 12
        left, top = float(right) - 0.6 * size * len(text), float(base) - 0.8 * size
        for xs, ys, half in edges:
            on = (xs > left) & (xs < float(right)) & (ys + half > top) & (ys - half < float(base) + 0.1 * size)
            assert not on.any(), text


def test_what_if(run):
    text = run("headgate.yaml", "--what-if", "site oslo upload=1Mbit/s")
    assert "nothing is overloaded" in text
    assert "(was 0." in text
    assert "└ lyon" not in run("headgate.yaml", "--what-if", "without site lyon")
    assert "40 ms" in run("headgate.yaml", "--what-if", "link oslo-paris delay=40ms")


def test_a_plan_is_carried_over_with_few_moves(run):
    text = run("headgate.yaml", "--what-if", "without site lyon", "--keep")
    assert "kept: 1 members have another parent, join or leave" in text
    assert "-> lyon" in text
    found = json.loads(run("headgate.yaml", "--what-if", "without site lyon", "--keep", "--json"))
    assert (found["moves"], len(found["steps"])) == (1, 1)
    with pytest.raises(HeadgateError, match="nothing changes"):
        run("headgate.yaml", "--keep")
    for question, part in (
        ("site osslo upload=1Mbit/s", "did you mean 'oslo'"),
        ("site oslo uplaod=1Mbit/s", "did you mean 'upload'"),
        ("make it fast", "is not a question"),
        ("without site oslo", "root of stream"),
    ):
        with pytest.raises(HeadgateError, match=part):
            run("headgate.yaml", "--what-if", question)


def test_compare_lists_all_algorithms(run):
    found = json.loads(run("headgate.yaml", "--compare", "--json"))
    assert list(found) == ["brush", "chain", "unfas", "unfag", "qasds", "qasdg", "search"]
    assert found["search"]["geometric_mean"] >= found["qasdg"]["geometric_mean"] - 1e-12


def test_evaluate_judges_a_plan_of_any_origin(run, tmp_path):
    problem = bulky(generate(Workload(sites=12, streams=2, filters_per_stream=6), 1), np.random.default_rng(1))
    graph = construct(problem, "unfas", 1).graph
    (tmp_path / "problem.json").write_text(json.dumps(problem_document(problem)))
    (tmp_path / "plan.json").write_text(json.dumps(plan_document(graph.plan())))
    found = json.loads(run("evaluate", "problem.json", "plan.json", "--json"))
    assert found["valid"]
    assert found["metrics"] == pytest.approx(measure(graph).as_dict())
    assert measure(Graph.of(parse_problem(problem_document(problem)), graph.plan())) == measure(graph)
    document = plan_document(graph.plan())
    document["s0"]["parents"].popitem()
    (tmp_path / "bad.json").write_text(json.dumps(document))
    refused = json.loads(run("evaluate", "problem.json", "bad.json", "--json", code=1))
    assert "filter satisfaction" in refused["violations"][0]
    with pytest.raises(HeadgateError, match="takes a problem and a plan"):
        run("evaluate")


@pytest.mark.parametrize(("document", "part"), [({}, "no 'sites'"), ([], "not in its form"), ({"sites": 3}, "form")])
def test_bad_problems_say_so(document, part):
    with pytest.raises(HeadgateError, match=part):
        parse_problem(document)
    with pytest.raises(HeadgateError):
        parse_plan([1])

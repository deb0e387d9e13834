"""What a good file means, and the rules that span several parts of a file."""

from pathlib import Path

import pytest

from headgate.catalog import DeploymentError, load_deployment, parse_deployment
from headgate.errors import HeadgateError
from headgate.model import Admission, Deployment, LinkQueue, Quality, Schema, Source, Tree
from headgate.wire.codec import decode_links, encode_links

TEXT = (Path(__file__).parents[1] / "data" / "headgate.yaml").read_text()


def problems(text: str, schemas: dict[str, Schema] | None = None) -> list[str]:
    with pytest.raises(DeploymentError) as caught:
        parse_deployment(text, "f", schemas)
    return [problem.message for problem in caught.value.problems]


def test_units_become_bytes_and_seconds(deployment: Deployment) -> None:
    oslo = deployment.sites["oslo"]
    assert (oslo.upload_bytes_per_s, oslo.download_bytes_per_s, oslo.processing_delay_s) == (250_000, None, 0.001)
    assert oslo.position == (59.9, 10.7)
    assert deployment.sites["lyon"].upload_bytes_per_s is None
    link = deployment.links.between("paris", "oslo")
    assert (link.delay_s, link.capacity_bytes_per_s) == (0.035, 1_250_000)
    assert deployment.links.between("paris", "lyon").delay_s == 0.02


def test_limits_of_links() -> None:
    pairs = "pairs: [{between: [oslo, paris], delay: 35 ms, capacity: 10 Mbit/s"
    assert pairs in TEXT
    links = parse_deployment(
        TEXT.replace(pairs, f"max_rows: 50000\n  {pairs}, max_bytes: 8 MB, max_age: 5 s"), "f"
    ).links
    assert links.queue_between("paris", "lyon") == LinkQueue(50_000)
    assert links.queue_between("paris", "oslo") == LinkQueue(50_000, 8e6, 5.0)
    assert decode_links(encode_links(links)) == links
    (wrong,) = problems(TEXT.replace(pairs, f"max_rows: 0\n  {pairs}"))
    assert "greater than or equal to 1" in wrong or "at least 1" in wrong
    assert problems(TEXT.replace(pairs, f"max_age: 8\n  {pairs}")) == ["links.max_age: 8 has no unit"]


def test_a_stream(deployment: Deployment) -> None:
    weather = deployment.streams["weather"]
    assert weather.schema.names == ("station", "lon", "lat", "temp", "wind", "at", "tags")
    assert weather.schema.ddl.endswith("`at` timestamp, `tags` array<string>")
    assert weather.options["grid"]["time"] == {"column": "at", "bin": "10 min"}
    assert weather.schema.column("temp").unit == "degC"
    assert weather.source == Source("json", {"path": "/data/in"})
    assert (weather.root, weather.key, weather.event_time, weather.rate_rows_per_s) == ("oslo", ("station",), "at", 200)
    assert weather.admission == Admission()


def test_a_source_that_has_a_rate_gives_the_expected_one(deployment: Deployment) -> None:
    assert deployment.streams["ticks"].rate_rows_per_s == 50


def test_options_of_a_source_are_kept_as_written() -> None:
    text = TEXT.replace("path: /data/in", "path: /in, header: NO, n: 007, sep: ';', ratio: 1e3, empty: ")
    options = parse_deployment(text, "f").streams["weather"].source.options
    assert options == {"path": "/in", "header": "NO", "n": "007", "sep": ";", "ratio": "1e3", "empty": ""}


def test_a_subscription(deployment: Deployment) -> None:
    storms = deployment.subscriptions["storms"]
    assert (storms.select, storms.context, storms.weight) == (("station", "wind"), {"limit": 12.5}, 2)
    assert storms.quality == Quality(drop=0.1, delay_s=2, at_least=0.8)
    assert (storms.format, storms.start, storms.expires_s) == ("json", "earliest", 3600)
    assert storms.resolution == {"space": "1/4", "time": "1/2"}
    prices = deployment.subscriptions["prices"]
    assert (prices.where, prices.select, prices.resolution, prices.format) == ("true", None, None, "arrow")


def test_a_plan() -> None:
    plan = parse_deployment(TEXT + "plan: {weather: {paris: oslo, lyon: paris}}", "f").plan
    assert plan is not None
    assert plan.trees == {"weather": Tree("weather", "oslo", {"paris": "oslo", "lyon": "paris"})}


def test_the_generator_knows_its_schema() -> None:
    text = TEXT.replace("    schema: {symbol: string, price: double}\n", "")
    known = {"ticks": Schema.of({"symbol": "string", "price": "double", "size": "int"})}
    assert parse_deployment(text, "f", known).streams["ticks"].schema == known["ticks"]
    assert problems(text, {"tick": known["ticks"]}) == ["streams.ticks.source.kind: unknown generator 'ticks'"]
    assert problems(text.replace("kind: ticks, ", ""), known) == ["streams.ticks.source.kind: a generator needs a kind"]


def test_a_broken_column_hides_no_other_problem_and_makes_no_false_one() -> None:
    text = TEXT.replace("wind: double", "wind: dubble").replace("event_time: at", "event_time: aat")
    assert problems(text.replace("site: lyon", "site: leon")) == [
        "streams.weather.schema.wind.type: unknown type 'dubble'",
        "subscriptions.prices.site: unknown site 'leon'",
    ]


def test_a_broken_key_does_not_hide_the_others() -> None:
    text = TEXT.replace("weight: 2", "weight: -2").replace("[station, wind]", "[station, wnd]")
    assert problems(text) == [
        "subscriptions.storms.select[1]: unknown column 'wnd'",
        "subscriptions.storms.weight: -2 is out of range: should be greater than 0",
    ]


def test_a_problem_inside_a_filter_is_placed_at_its_character() -> None:
    with pytest.raises(DeploymentError) as caught:
        parse_deployment(TEXT.replace("station like", "sttion like"), "f")
    (problem,) = caught.value.problems
    line = TEXT.splitlines()[problem.line - 1]
    assert line[problem.column - 1 :].startswith("station like")
    assert problem.hint == "did you mean 'station'?"


def test_a_folded_filter_is_placed_at_its_start() -> None:
    text = TEXT.replace(
        "\"wind > $limit and station like 'N%'\"", ">-\n      wind > $limit\n      and sttion like 'N%'"
    )
    with pytest.raises(DeploymentError) as caught:
        parse_deployment(text, "f")
    (problem,) = caught.value.problems
    assert text.splitlines()[problem.line - 1][problem.column - 1 :] == ">-"


def test_the_example_of_the_documentation_is_good() -> None:
    page = (Path(__file__).parents[2] / "docs" / "deployment-file.md").read_text()
    example = page.split("```yaml\n")[1].split("```")[0]
    prices = Schema.of({"symbol": "string", "price": "double"})
    assert len(parse_deployment(example, "f", {"ticks": prices}).streams) == 2


def test_a_file_and_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "head gate.yaml"
    path.write_text(TEXT)
    assert load_deployment(path) == parse_deployment(TEXT, "f")
    with pytest.raises(HeadgateError, match="is a directory"):
        load_deployment(tmp_path)


@pytest.mark.parametrize("value", ["7", "[]", "text", "null", "{a: 1}", "[[1]]", "true", "1.5"])
@pytest.mark.parametrize("key", ["streams", "sites", "links", "subscriptions", "plan", "objective", "constraints"])
def test_any_value_at_any_key_is_read_or_refused_with_a_place(key: str, value: str) -> None:
    lines = [f"{key}: {value}"]
    if key != "sites":
        lines.append("sites: {oslo: }")
    if key != "streams":
        lines.append("streams: {t: {root: oslo, schema: {v: double}, source: {format: json}}}")
    try:
        parse_deployment("\n".join(lines), "f")
        found = []
    except DeploymentError as error:
        found = list(error.problems)
    assert all(problem.line >= 1 and problem.message for problem in found)


@pytest.mark.parametrize("value", ["much", "-0.1", ".nan", "true"])
def test_what_a_move_must_bring_is_a_part(value: str) -> None:
    text = f"options: {{replan_move_gain: {value}}}\nsites: {{a: }}\n"
    with pytest.raises(DeploymentError, match=r"options\.replan_move_gain: .* is not a part .*at least 0"):
        parse_deployment(text, "f")


@pytest.mark.parametrize("shares", ["[ada]", "{ada: 0}", "{ada: much}", "{ada: true}"])
def test_shares_of_the_matching_are_numbers_above_zero(shares: str) -> None:
    text = "sites: {a: {}}\nstreams: {s: {root: a, source: {format: nats}, schema: {x: int}}}\n"
    parse_deployment(f"{text}options: {{matching_shares: {{ada: 2.5}}}}\n", "test.yaml")
    with pytest.raises(DeploymentError, match=r"\{ada: 3\}"):
        parse_deployment(f"{text}options: {{matching_shares: {shares}}}\n", "test.yaml")

"""Subscriptions that tolerate to miss a share of their rows, under overload of a real job."""

import asyncio

import pytest
from tests.live import running, small

from headgate.cli.status_sheets import error_lines

pytestmark = [pytest.mark.spark, pytest.mark.nats]


@pytest.mark.long
def test_nobody_misses_more_than_tolerated_and_the_most_tolerant_go_first(tmp_path, nats_url, spark):
    document = small(
        600,
        all={"site": "leaf"},
        some={"site": "mid", "require": {"bound": "1 s", "false_negatives": 0.25}},
        strict={"site": "leaf", "require": "e-science"},
    )
    document["streams"]["fleet"]["source"]["max_rows_per_trigger"] = 200
    # Rows are of the start of the year, so none fits the bound once it is known what one takes.
    document["streams"]["fleet"]["admission"] = {"require": {"preset": "sports results", "bound": "1 s"}}

    async def run():
        async with running(document, tmp_path, nats_url, spark) as live:
            live.readers.start(["all", "some", "strict"])
            await live.run_queries("fleet")
            status = await live.settle()
            stream, lines = status["streams"]["fleet"], status["subscriptions"]
            withheld = stream["withheld"]
            assert (stream["rows_in"], stream["evaluated"], stream["shed"], stream["difference"]) == (600, 600, 0, 0)
            assert set(withheld) == {"1", "0.2"}
            assert 390 <= withheld["1"] == stream["partly_shed"] < 400
            assert 70 <= withheld["0.2"] <= 80
            assert [lines[name]["delivered"] for name in ("all", "some", "strict")] == [
                600 - withheld["1"],
                600 - withheld["0.2"],
                600,
            ]
            assert all(each["difference"] == 0 for each in lines.values())
            assert [lines[name]["tolerates"] for name in ("all", "some", "strict")] == [1.0, 0.2, 0.0]
            assert lines["some"]["withheld"] == round(withheld["0.2"] / 600, 6)
            # Every row matches all three, so the sample says exactly what was missed.
            missed = withheld["1"] + withheld["0.2"]
            assert stream["errors"]["false_negatives"] == {"estimate": missed, "low": missed, "high": missed}
            assert stream["job"]["late_rows"] > 0
            said = error_lines(status)
            assert any("from those who tolerate 100%" in line and "tolerate 20%" in line for line in said)
            assert any("rows kept past the latency bound" in line for line in said)

    asyncio.run(run())

"""Benchmarks that run on another version's sources run on those, and say so when there are none."""

from __future__ import annotations

import pytest

from headgate.errors import HeadgateError
from headgate_studies.bench.versions import check_version, figures_of


def test_a_folder_without_sources_is_refused(tmp_path):
    with pytest.raises(HeadgateError, match="there is no version of headgate"):
        check_version(str(tmp_path))
    (tmp_path / "headgate").mkdir()
    check_version(str(tmp_path))


def test_a_run_takes_the_sources_that_are_named(tmp_path):
    (tmp_path / "which.py").write_text("name = 'the other'\n")
    code = "import json, which; print('noise'); print(json.dumps({'name': which.name}))"
    assert figures_of(code, str(tmp_path)) == {"name": "the other"}
    with pytest.raises(HeadgateError, match="No module named 'which'"):
        figures_of(code)

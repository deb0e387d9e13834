from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import matplotlib as mpl
import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv.pop(1))
import headgate.cli.app as app
from headgate_studies.session import make_session

def worker(batches):
    import os, headgate, pyarrow
    for batch in batches:
        yield pyarrow.record_batch({"id": [f"{headgate.__file__}|{os.environ['NUMBA_NUM_THREADS']}"]})

spark = make_session("installed", "local[1]", state_dir=Path(sys.argv.pop(1)))
print(spark.sparkContext._jvm.java.lang.System.getProperty("java.version"))
print(spark.range(1).mapInArrow(worker, "id string").first()[0], flush=True)
app.main()
"""


@pytest.fixture
def installed(tmp_path) -> Path:
    """The wheels of both distributions alone, unpacked in a directory of their own."""
    built = tmp_path / "wheel"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    target = tmp_path / "installed here"
    for project in (ROOT, ROOT / "studies"):
        subprocess.run(build, cwd=project, check=True, capture_output=True)
    for path in sorted(built.glob("*.whl")):
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(target)
    return target


@pytest.fixture
def tools(tmp_path) -> Path:
    """A PATH without Java."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("bash", "sh", "dirname", "ps", "head", "cat", "env", "uname", "rm"):
        found = next((Path(place, name) for place in ("/bin", "/usr/bin") if Path(place, name).exists()), None)
        if found:
            (directory / name).symlink_to(found)
    return directory


@pytest.mark.spark
@pytest.mark.long
def test_a_wheel_runs_a_study_anywhere_with_the_java_of_a_wheel(tmp_path, installed, tools):
    """No checkout on the path, no Java on the machine, spaces in every path; workers run the wheel's code."""
    away = tmp_path / "some where"
    away.mkdir()
    # A study without compiled kernels: this code is new to numba's cache, and what is tried here is not the kernels.
    study = ["study", "run", "xport-adaptivity", "--seeds", "3", "--set", "sites=6", "--set", "match_ms=5"]
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, str(installed), str(tmp_path / "the state"), *study],
        cwd=away,
        env={
            "PATH": str(tools),
            "HOME": str(tmp_path),
            "TMPDIR": str(tmp_path),
            "MPLCONFIGDIR": mpl.get_cachedir(),  # its list of fonts takes seconds to make
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    version, place, *_, figures = done.stdout.splitlines()
    assert version.startswith("21.")
    assert place == f"{installed / 'headgate' / '__init__.py'}|1"
    assert json.loads(figures)["rows"] == 3
    assert (away / "docs" / "studies" / "xport-adaptivity" / "chart.svg").is_file()
    assert "WARN" not in done.stderr
    assert sorted(path.name for path in away.iterdir()) == ["artifacts", "docs"]

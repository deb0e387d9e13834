"""Kernels compiled ahead of time land in the directory that was named."""

import os
import subprocess
import sys

from headgate.matching import warm_up
from headgate.matching.compiled import search


def test_warming_up_compiles_the_kernels():
    warm_up()
    assert search.match_rows.signatures
    assert search.match_one.signatures


def test_kernels_are_kept_where_the_environment_says(tmp_path):
    code = "from headgate.matching.compiled import coding; print(coding.encode_rows.stats.cache_path)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(tmp_path))

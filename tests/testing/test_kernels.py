"""`make test` compiles every kernel before it starts its workers."""

import pytest

from headgate_studies.testing import kernels

# Only a benchmark calls it.
LEFT_OUT = {"headgate.planning.kernel.flow.time_moves"}


@pytest.mark.slow  # loads every kernel, and compiles those that are not on disk yet
def test_no_kernel_is_left_to_the_workers():
    for half in kernels.HALVES:
        for compile_room in half:
            compile_room()
    found = dict(kernels.kernels())
    assert len(found) > 40
    assert {name for name, kernel in found.items() if not kernels.is_kept(kernel)} - LEFT_OUT == set()


def test_kernels_are_found_by_walking_the_packages():
    names = {name for name, _ in kernels.kernels()}
    assert {"headgate.planning.kernel.repair.tend", "headgate.grid._treekernels.find"} <= names
    assert "headgate.matching.compiled.search.match_rows" in names

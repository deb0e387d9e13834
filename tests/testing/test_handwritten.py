"""Both sides of a comparison do the same work: records by hand are those that the product writes."""

import pytest

from headgate.wire.frame import WireError
from headgate.wire.ledger import Begun, Tally
from headgate_studies.testing.handwritten import by_hand_read, by_hand_write


def test_records_by_hand_are_those_of_the_product():
    tally = Tally(7, 0, 900, 800, {"latest": 100}, mark=950, begun=Begun(1_000, 3), beyond=[(960, 970)], run="r")
    tally.jitter.add(12.5, 3)
    assert by_hand_write(tally) == tally.encode()
    assert by_hand_read(tally.encode()) == Tally.decode(by_hand_write(tally)) == tally


@pytest.mark.parametrize(
    ("name", "value", "said"), [("mark", -1, "int|whole"), ("delivered", "8", "int|whole"), ("run", 5, "str")]
)
def test_values_of_another_kind_are_refused_by_both(name, value, said):
    tally = Tally(7)
    setattr(tally, name, value)
    for read in (by_hand_read, Tally.decode):
        with pytest.raises((ValueError, WireError), match=said):
            read(by_hand_write(tally))

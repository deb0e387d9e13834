"""The contract of profile types: subclass it in a test module, give it examples, and pytest proves the type.

    class TestTopics(ProfileContract):
        profile_type = profile_type("topics")
        schema = Schema.of({"topic": "string"})
        accepted = ("news/#", "news/sport", "*")
        refused = ("", "news/#/x")
        rows = pa.record_batch({"topic": ["news", "news/sport", None]})

The rows should tell the accepted texts apart, or there is little to prove.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.filters import FilterError, context_types
from headgate.filters.profiles import Profile, ProfileIndex, ProfileType
from headgate.filters.sizes import SizedInterest, StreamStatistics
from headgate.model import Schema


class ProfileContract:
    """What every profile type guarantees."""

    profile_type: ClassVar[ProfileType]
    schema: ClassVar[Schema]
    accepted: ClassVar[Sequence[str]]
    refused: ClassVar[Sequence[str]] = ()
    rows: ClassVar[pa.RecordBatch]
    context: ClassVar[Mapping[str, Any]] = {}

    def _compiled(self) -> list[Profile]:
        types = context_types(self.context)
        return [self.profile_type.compile(text, self.schema, types) for text in self.accepted]

    def _matches(self, profile: Profile, rows: pa.RecordBatch | None = None) -> list[bool]:
        found: list[bool] = self.profile_type.match(self.rows if rows is None else rows, profile, self.context).tolist()
        return found

    def test_the_type_has_the_methods_and_a_name(self) -> None:
        """It follows the protocol."""
        assert isinstance(self.profile_type, ProfileType)
        assert self.profile_type.name.isidentifier()

    def test_compiling_is_stable(self) -> None:
        """The same text gives the same profile, and equal canonical texts match equal rows."""
        by_text: dict[str, list[bool]] = {}
        for one, again in zip(self._compiled(), self._compiled(), strict=True):
            assert one.text == again.text
            assert by_text.setdefault(one.text, self._matches(one)) == self._matches(one)

    def test_a_profile_reads_the_columns_it_names(self) -> None:
        """Any other column may be left out."""
        for profile in self._compiled():
            assert profile.columns <= set(self.schema.names)
            kept = [name for name in self.rows.schema.names if name in profile.columns] or self.rows.schema.names[:1]
            assert self._matches(profile, self.rows.select(kept)) == self._matches(profile)
            assert profile.parameters <= set(self.context)

    def test_matching_answers_row_by_row(self) -> None:
        """One boolean a row, and a row's answer does not depend on its neighbours."""
        rows = self.rows.num_rows
        for profile in self._compiled():
            found = self.profile_type.match(self.rows, profile, self.context)
            assert found.dtype == np.bool_
            assert found.shape == (rows,)
            assert self._matches(profile, self.rows.slice(1)) == found.tolist()[1:]
            assert self._matches(profile, self.rows.slice(0, 0)) == []
            assert [self._matches(profile, self.rows.slice(row, 1))[0] for row in range(rows)] == found.tolist()

    def test_profiles_travel(self) -> None:
        """A profile is sent to Spark's workers by pickle."""
        for profile in self._compiled():
            again = pickle.loads(pickle.dumps(profile))  # noqa: S301 - our own bytes
            assert again.text == profile.text
            assert self._matches(again) == self._matches(profile)

    def test_covering_is_never_wrong(self) -> None:
        """A yes means that no row is lost; every profile covers itself; covering is transitive on what was said."""
        profiles = self._compiled()
        said = {(i, j): self.profile_type.covers(profiles[i], profiles[j]) for i, j in _pairs(profiles)}
        for (i, j), yes in said.items():
            assert yes or i != j
            if yes:
                lost = np.array(self._matches(profiles[j])) & ~np.array(self._matches(profiles[i]))
                assert not lost.any(), (profiles[i].text, profiles[j].text)

    def test_merging_loses_nothing(self) -> None:
        """The merge matches what either matches and covers both."""
        profiles = self._compiled()
        for i, j in _pairs(profiles):
            merged = self.profile_type.merge(profiles[i], profiles[j])
            either = np.array(self._matches(profiles[i])) | np.array(self._matches(profiles[j]))
            assert not (either & ~np.array(self._matches(merged))).any()
            assert self.profile_type.covers(merged, profiles[i])
            assert self.profile_type.covers(merged, profiles[j])
            assert merged.columns <= profiles[i].columns | profiles[j].columns

    def test_the_index_agrees_with_matching(self) -> None:
        """Where there is an index it gives exactly the matches, also after profiles were removed."""
        profiles = self._compiled()
        index = self.profile_type.index()
        if index is None:
            return
        assert isinstance(index, ProfileIndex)
        for number, profile in enumerate(profiles):
            index.add(number, profile)
        self._check_index(index, dict(enumerate(profiles)))
        for number in range(0, len(profiles), 2):
            index.remove(number)
        self._check_index(index, {number: profile for number, profile in enumerate(profiles) if number % 2})

    def _check_index(self, index: ProfileIndex, profiles: Mapping[int, Profile]) -> None:
        offsets, numbers = index.match(self.rows)
        assert len(offsets) == self.rows.num_rows + 1
        expected = {number: self._matches(profile) for number, profile in profiles.items()}
        for row in range(self.rows.num_rows):
            found = numbers[offsets[row] : offsets[row + 1]].tolist()
            assert found == [number for number in sorted(expected) if expected[number][row]]

    def test_bad_texts_are_refused_with_their_place(self) -> None:
        """A refusal is a `FilterError`, which has a position and a message."""
        for text in self.refused:
            refusal = self._refusal(text)
            assert isinstance(refusal, FilterError), f"{text!r} is answered with {refusal!r}"
            assert refusal.message
            assert 0 <= refusal.position <= len(text)

    def _refusal(self, text: str) -> HeadgateError | None:
        try:
            self.profile_type.compile(text, self.schema, context_types(self.context))
        except HeadgateError as error:
            return error
        return None

    def test_the_planner_can_size_it(self) -> None:
        """Selectivity is that of the rows, and a merged interest is at least as large as its parts."""
        statistics = StreamStatistics(self.schema, np.random.default_rng(1))
        statistics.update(self.rows)
        interests = [SizedInterest.of(each, None, statistics, self.profile_type) for each in self._compiled()]
        for interest in interests:
            if interest.profile.parameters:
                continue
            share = float(np.mean(self._matches(interest.profile)))
            assert abs(statistics.selectivity(interest.profile).value - share) < 1e-9
            assert interest.merge(interests[0]).covers(interest)


def _pairs(profiles: Sequence[Profile]) -> list[tuple[int, int]]:
    return list(product(range(len(profiles)), range(len(profiles))))

"""Seeded streams whose row k is a pure function of the seed, k and the options: any range can be made again.

Tests and oracles use `generate` directly; the Spark source `generator` yields the same rows. No Spark here.
"""

from headgate.pipeline.sources.generators.generate import (
    GENERATOR_SCHEMAS,
    GENERATORS,
    ORIGIN_US,
    GeneratorError,
    generate,
    generator_of,
)

__all__ = ["GENERATORS", "GENERATOR_SCHEMAS", "ORIGIN_US", "GeneratorError", "generate", "generator_of"]

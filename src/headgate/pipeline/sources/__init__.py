"""Where rows come from: the generators, NATS subjects and every streaming format of Spark, all as typed columns.

`read` gives a stream's DataFrame; `check_source` finds what is wrong with a source before anything is started.
"""

from headgate.pipeline.sources.generators import GENERATOR_SCHEMAS, generate
from headgate.pipeline.sources.options import SourceError
from headgate.pipeline.sources.reading import check_source, read, register_sources

__all__ = ["GENERATOR_SCHEMAS", "SourceError", "check_source", "generate", "read", "register_sources"]

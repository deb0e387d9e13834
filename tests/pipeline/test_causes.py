"""What a user reads of a failed query, from texts as Spark 4.3 gives them."""

from __future__ import annotations

import pytest

from headgate.pipeline.causes import LONGEST, cause_of

PROXY = """\
[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. Reason: \
An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "/headgate/pipeline/commit.py", line 147, in commit
    raise LineageError(
headgate.pipeline.checkpoint.LineageError: stream 's' was committed by the checkpoint aa, this one is bb (restore it)
 SQLSTATE: 39000
=== Streaming Query ===
Identifier: s [id = 1, runId = 2]
"""

WORKER = """\
Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in stage 3.0: \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/nats/aio/client.py", line 900, in publish
    raise errors.MaxPayloadError
nats.errors.MaxPayloadError: nats: maximum payload exceeded

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/headgate/fabric/client.py", line 191, in publish
headgate.fabric.client.FabricError: hg.root.s.part: not stored: MaxPayloadError()

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
Caused by: org.apache.spark.SparkException: something else
"""

PLAIN = """\
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "x.py", line 1, in f
ZeroDivisionError: division by zero
\tat org.apache.spark
"""

STAGE = """\
An error occurred while calling o439.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 0.0 (TID 0) (192.0.2.2 executor driver): java.io.OptionalDataException
\tat java.base/java.io.ObjectInputStream.readObject0(ObjectInputStream.java:1767)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$2(DAGScheduler.scala:3122)
"""

CHAIN = (
    STAGE
    + """\
Caused by: java.lang.reflect.InvocationTargetException
\tat java.base/java.lang.reflect.Method.invoke(Method.java:569)
Caused by: java.lang.NumberFormatException: For input string: "x"
\t... 28 more
"""
)

CALL = """\
An error occurred while calling o30.start.
: java.lang.IllegalArgumentException: requirement failed: no such option
\tat scala.Predef$.require(Predef.scala:337)
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (PROXY, "stream 's' was committed by the checkpoint aa, this one is bb (restore it)"),
        (WORKER, "hg.root.s.part: not stored: MaxPayloadError()"),
        (PLAIN, "ZeroDivisionError: division by zero"),
        (STAGE, "java.io.OptionalDataException"),
        (CHAIN, 'java.lang.NumberFormatException: For input string: "x"'),
        (CALL, "java.lang.IllegalArgumentException: requirement failed: no such option"),
        ("no log\nmore", "no log"),
        ("x" * 5000, "x" * LONGEST),
    ],
)
def test_the_cause_comes_first(text, cause):
    assert cause_of(text) == cause

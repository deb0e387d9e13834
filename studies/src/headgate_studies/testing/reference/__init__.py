"""The pages of `docs/reference`, generated from the code so that they cannot say anything else.

`python -m headgate_studies.testing.reference docs/reference` writes them, and a test fails when the committed ones are
stale. The same code always gives the same bytes.
"""

from headgate_studies.testing.reference.pages import pages, write_pages

__all__ = ["pages", "write_pages"]

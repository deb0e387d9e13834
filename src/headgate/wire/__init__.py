"""What goes into a log or over a link, as bytes: frames, rows, class lists, parts, manifests, blocks, coverage, ledger.

Bytes and arithmetic only: no sockets, files, clocks or threads. These are the contracts that everything else stands
on; `docs/wire.md` describes them for readers of other languages.
"""

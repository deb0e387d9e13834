"""Execute notebooks without Jupyter: ``python -m headgate_studies.testing.notebooks NOTEBOOK.ipynb``.

The cells run in one namespace, in order. What a cell prints and the figures that it leaves open become its outputs, as
a notebook server would store them, so that the page can be read where nothing is run.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def executed(text: str) -> dict[str, Any]:
    """The notebook of a JSON text with the outputs of all of its code cells."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    notebook: dict[str, Any] = json.loads(text)
    namespace: dict[str, Any] = {"__name__": "__notebook__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = compile("".join(cell["source"]), f"cell {number}", "exec")
            exec(code, namespace)  # noqa: S102 - a notebook of this repository
        outputs: list[dict[str, Any]] = []
        if said.getvalue():
            lines = said.getvalue().splitlines(keepends=True)
            outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
        outputs += [_picture(plt.figure(figure)) for figure in plt.get_fignums()]
        plt.close("all")
        cell["outputs"], cell["execution_count"] = outputs, number
    return notebook


def printed(notebook: dict[str, Any]) -> list[str]:
    """What the cells of a notebook printed, cell by cell."""
    streams = [each for cell in notebook["cells"] for each in cell.get("outputs", ()) if "text" in each]
    return ["".join(each["text"]) for each in streams]


def charts(notebook: dict[str, Any]) -> int:
    """How many pictures a notebook holds."""
    outputs = [each for cell in notebook["cells"] for each in cell.get("outputs", ())]
    return sum("image/png" in each.get("data", {}) for each in outputs)


def _picture(figure: Any) -> dict[str, Any]:
    held = io.BytesIO()
    figure.savefig(held, format="png", dpi=80, bbox_inches="tight", metadata={"Software": None})
    data = {"image/png": base64.b64encode(held.getvalue()).decode(), "text/plain": ["<a figure>"]}
    return {"output_type": "display_data", "metadata": {}, "data": data}


def main(arguments: list[str]) -> int:
    """Execute notebooks in place."""
    for name in arguments:
        path = Path(name)
        notebook = executed(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{name}: {charts(notebook)} charts")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

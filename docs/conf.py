"""How the documentation site is built: `python -m nox -s docs`."""

from __future__ import annotations

import importlib.metadata

project = "outbox-core"
author = "The outbox-core maintainers"
release = importlib.metadata.version("outbox-core")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinxcontrib.mermaid",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"outbox-core {release}"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4

copybutton_prompt_text = "$ "  # a reader copies commands, not the prompt and what they print

default_role = "py:obj"  # docstrings name classes in single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_default_options = {"members": True, "show-inheritance": True}

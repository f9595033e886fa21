"""Settings of the documentation site: `make docs` builds it into docs/_build/html.

Sphinx, since it reads numpydoc docstrings as they are, and fails on a link that leads nowhere (`-W`). The pages stay
Markdown (MyST), to be read on their own beside the code.
"""

import re

from docutils import nodes

from mlfs_dask import __version__

project = "mlfs-dask"
author = "the authors of mlfs-dask"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]

myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks are shown as they were run; tests run them again
highlight_language = "text"
smartquotes = False  # a quoted value can be copied

default_role = "code"  # `name` in a docstring
autodoc_class_signature = "separated"
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the Parameters sections have them, in words
numpydoc_show_class_members = False  # `:members:` says which

html_theme = "furo"
html_title = f"mlfs-dask {release}"
html_copy_source = False
html_show_copyright = False  # LICENSE has it
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"light_css_variables": {"code-font-size": "12px"}}  # lines of 90 characters


def _hold_numbers_together(app, doctree, page):
    """Let no line end within 2 000 000."""
    for text in list(doctree.findall(nodes.Text)):
        if not isinstance(text.parent, nodes.literal | nodes.literal_block):
            text.parent.replace(text, nodes.Text(re.sub(r"(?<=\d) (?=\d{3}\b)", "\N{NO-BREAK SPACE}", text)))


def setup(app):
    app.connect("doctree-resolved", _hold_numbers_together)

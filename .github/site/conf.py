# SPDX-License-Identifier: Apache-2.0
"""Sphinx's settings. make.py calls with the folder that it has staged."""
import os

project = "libddp"
author = "The libddp developers"
copyright = "The libddp developers. Apache License 2.0"  # noqa: A001
release = version = os.environ["DDP_VERSION"]
extensions = ["breathe", "myst_parser", "sphinx_copybutton"]
root_doc = "index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = []

breathe_projects = {"ddp": os.environ["DDP_XML"]}
breathe_default_project = "ddp"
breathe_domain_by_extension = {"h": "c"}
breathe_show_include = False
c_extra_keywords = []
c_id_attributes = ["DDP_API", "DDP_NODISCARD"]

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

html_theme = "furo"
html_title = f"libddp {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_last_updated_fmt = None
pygments_style = "friendly"
pygments_dark_style = "native"

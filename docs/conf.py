"""Sphinx configuration of the documentation: `make docs`."""

project = "langgraph-roundcompact"
author = "langgraph-roundcompact contributors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "langgraph-roundcompact"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "separated"
default_role = "code"
exclude_patterns = ["_build"]

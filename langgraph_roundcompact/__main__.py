"""`python -m langgraph_roundcompact`: the commands, where `roundcompact` is not on the path."""

from __future__ import annotations

import sys

from langgraph_roundcompact.cli import main

if __name__ == "__main__":
    sys.exit(main())

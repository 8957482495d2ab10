"""Writes docs/demo.svg, the picture in the README, from a real run: `python tools/demo_picture.py [--fast]`."""

import os
import re
import sys
import tempfile
from pathlib import Path

from trimtab.cli.demo import FAST, DemoPlan, run_demo
from trimtab.cli.demo_screen import Screen

if __name__ == "__main__":
    picture = Path("docs/demo.svg").absolute()
    screen = Screen(sys.stdout)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the paths in the picture are short, and nobody's own
        run_demo(FAST if "--fast" in sys.argv else DemoPlan(), Path("demo"), screen)
        os.chdir(picture.parent)
    drawn = screen.record.export_svg(title="trimtab demo")
    picture.write_text(
        re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    )  # nothing is loaded from elsewhere

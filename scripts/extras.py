"""Prints what all extras of the installed package need, a line each, so that they come without building it again."""

import re
from importlib.metadata import requires

for line in requires("torchcaps") or []:
    name, _, condition = line.partition(";")
    if "extra ==" in condition and not name.startswith("torchcaps"):
        rest = re.sub(r"(\s*and\s*)?extra == ['\"]\w+['\"]", "", condition).strip()
        print(f"{name.strip()}; {rest}" if rest else name.strip())

"""Print "VERSION;DIRECTORY" of the torch of this interpreter, without importing it; exit 1 with a reason otherwise."""

import importlib.util
import os
import re
import sys

OLDEST = (2, 11)

spec = importlib.util.find_spec("torch")
if spec is None or spec.origin is None:
    sys.exit("torch is not installed here")
directory = os.path.dirname(spec.origin)
with open(os.path.join(directory, "version.py"), encoding="utf-8") as file:
    match = re.search(r"^__version__ = ['\"]([^'\"]+)['\"]", file.read(), re.MULTILINE)
if match is None:
    sys.exit(f"{directory}/version.py names no version")
version = match.group(1)
numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
if numbers < OLDEST:
    sys.exit(f"torch {version} is too old: {OLDEST[0]}.{OLDEST[1]} or newer is needed")
print(f"{version};{directory}")

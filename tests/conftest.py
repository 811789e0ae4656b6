"""Load the gate's plugin for every test of this tree, and choose how hard hypothesis tries.

`HYPOTHESIS_PROFILE` names a profile: "dev" draws anew in every run, "ci" draws the same examples in
every run, so that a build is red for its own change alone, and "thorough" is for a night.  No
profile has a deadline: no test here may fail for an absolute time.
"""

from __future__ import annotations

import os

from hypothesis import settings

from accelerated.triton_interpreter import interpret_without_accelerator

# Before any test imports triton, which decides then, for the whole process.
interpret_without_accelerator()

pytest_plugins = ["gate.plugin"]

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "dev"))

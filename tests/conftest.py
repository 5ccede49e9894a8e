"""Settings for every test."""

import os

from hypothesis import settings

# A slow machine is not a wrong result; in CI the same examples each time, so that a red build is
# about the change.
in_ci = os.environ.get("CI", "") not in ("", "0", "false")
settings.register_profile("project", deadline=None, derandomize=in_ci)
settings.load_profile("project")

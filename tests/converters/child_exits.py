"""A module whose import ends the process: for test_runner.py."""

import os

os._exit(3)

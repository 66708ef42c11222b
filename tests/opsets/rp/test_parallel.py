"""Two gloo processes on the CPU compute and train what one process does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_ddp_fsdp_and_dtensor_on_two_processes_equal_one_process():
    script = Path(__file__).with_name("two_processes.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-4000:]

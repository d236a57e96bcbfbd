"""Runs another training script, then writes what `deepum status` says of this process into a file; of a rank among several into FILE.RANK.

Usage: status_at_end.py DEEPUM_EXECUTABLE STATUS_FILE SCRIPT [ARGUMENT…]
"""
import os
import runpy
import subprocess
import sys

deepum, status_file, *sys.argv = sys.argv[1:]
if "RANK" in os.environ:
    status_file += "." + os.environ["RANK"]
try:
    # As Python does for a program: what lies beside it can be imported.
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    import torch

    torch.cuda.synchronize()
    clean = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    with open(status_file, "wb") as out:
        subprocess.run([deepum, "status", "--json", str(os.getpid())], stdout=out, env=clean, check=True)

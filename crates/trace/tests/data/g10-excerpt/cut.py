"""Cuts a profile of G10 down to a few kernels: python3 cut.py G10_FOLDER MODEL BATCH FIRST LAST

Keeps the first FIRST and the last LAST kernels and the tensors they name. Kernels and tensors are numbered anew in their old order, and the
ranges of tensors are packed anew in theirs; every other figure is as it was. Writes beside itself, in the same layout.
"""

import gzip
import re
import sys
from pathlib import Path

TENSOR = re.compile(r"tensor(\d+)( Is weight \(global\)\?: ([01]), Size in byte: (\d+), Range:)\d+--\d+$")
source, model, batch, first, last = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
target = Path(__file__).parent


def lines(kind):
    with gzip.open(source / "derived" / model / f"{batch}-{kind}.config.gz", "rt") as file:
        return file.read().splitlines()


def write(kind, text):
    path = target / "derived" / model / f"{batch}-{kind}.config.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(line + "\n" for line in text).encode(), mtime=0))


records, record = [], []
for line in lines("kernels"):
    record.append(line)
    if line.startswith("____"):
        records.append(record)
        record = []
kept = [number for number in range(len(records)) if number < first or number >= len(records) - last]
named = {int(m[1]) for number in kept for line in records[number] if (m := TENSOR.match(line))}

tensors, ends = {}, {"0": 0, "1": 0}
for line in lines("tensors"):
    match = TENSOR.match(line)
    if int(match[1]) in named:
        low = ends[match[3]]
        ends[match[3]] = high = low + int(match[4])
        tensors[match[1]] = f"tensor{len(tensors)}{match[2]}{low}--{high}"

write("tensors", tensors.values())
text = []
for new, old in enumerate(kept):
    for line in records[old]:
        match = TENSOR.match(line)
        text.append(tensors[match[1]] if match else line.replace(f"Kernel ID: {old},", f"Kernel ID: {new},"))
write("kernels", text)

for what in ["", "InputPF", "PF", "Workspace"]:
    name = Path("results") / model / f"cudnn{batch}{what}.txt"
    figures = (source / name).read_text().splitlines()
    (target / name).parent.mkdir(parents=True, exist_ok=True)
    cut = [f"{new:04} {figures[old].split(' ', 1)[1]}\n" for new, old in enumerate(kept)]
    (target / name).write_text("".join(cut))

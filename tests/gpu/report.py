"""What scripts/gpu-check writes down: summary.md, results.json, and the numbers of a profile."""
import datetime
import json
import pathlib
import subprocess
import sys


def read(path):
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return None


def table(head, rows):
    cells = lambda row: "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"
    return [cells(head), cells(["---"] * len(head)), *map(cells, rows), ""]


def write(check):
    commit = subprocess.run(["git", "-C", pathlib.Path(__file__).resolve().parent, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip() or read(check.args.deepum.parent / "COMMIT")
    first = next((run for run in check.runs.values() if "torch" in run), {})
    about = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit,
        "gpu": first.get("device"),
        "asked for": check.args.gpu,
        "driver": check.runs.get("measure", {}).get("driver") or read("/sys/module/nvidia/version"),
        "torch": first.get("torch"),
        "command": " ".join(sys.argv),
    }
    failed = [v for v in check.verdicts if not v["passed"]]
    results = {"schema": "deepum-gpu-check/2", "about": about, "verdicts": check.verdicts, "runs": check.runs}
    (check.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    lines = ["# GPU check", "", *(f"- {key}: {value}" for key, value in about.items()), "", "## Checks", ""]
    lines += table(["check", "result", "detail"], [[v["check"], "passed" if v["passed"] else "**failed**", v["detail"]] for v in check.verdicts])
    for name, (head, rows) in check.tables.items():
        lines += [f"## {name.capitalize()}", "", *table(head, rows)]
    (check.out / "summary.md").write_text("\n".join(lines))
    print(f"{len(check.verdicts) - len(failed)} passed, {len(failed)} failed; written to {check.out}")
    return 1 if failed or not check.verdicts else 0


def calibration(found):
    """Numbers of a device profile, as they were measured."""
    median = {row["name"]: row["median"] for row in found["figures"]}
    lines = [f"# {found['device']}, driver {found['driver']}{', emulated' if found['emulated'] else ''}: numbers of a profile (crates/model/profiles), measured."]
    for key, way in (("h2d_gb_s", "in"), ("d2h_gb_s", "leave" if "leave_2mib_gb_s" in median else "out")):
        # Calls of 2 and of 32 MiB take the same time each beside what they carry.
        small, large = (2**21 * blocks / median[f"{way}_{2 * blocks}mib_gb_s"] for blocks in (1, 16))
        lines.append(f"{key} = {15 * 2**21 / (large - small):.2f}")
        lines.append(f"# A call {way} that moves nothing would take {(16 * small - large) / 15:.0f} ns.")
    lines.append(f"# ioctl_ns and block_ns together: {median['touch_ns']:.0f} (a touch).")
    lines.append(f"stream_write_ns = {max(median['stream_write_ns'], 0):.0f}")
    return "\n".join(lines) + "\n"

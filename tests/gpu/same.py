"""The C programs of tests/programs/same on this machine's CUDA: each without the shim, with it, and with it on hardly any of the GPU's memory.

They are compiled here, against the libraries that PyTorch uses. What they print, how they end and what is said on stderr must be equal, but for the lines
that the shim is to say (`//! says: TEXT` and `//! may say: TEXT` at the beginning of a program; tests/suites/same.rs does the same on the emulated device).
`//! alone: WHY` is for those that others of this GPU would disturb.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import threading
import time

PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "programs"
SAME = PROGRAMS / "same"
WAYS = {"without": None, "dormant": {}, "tight": {"DEEPUM_GPU_BUDGET": "8MiB"}}
SECONDS = 20
# Prints the CUDA libraries that PyTorch has loaded, and the version of CUDA that it is for.
LIBRARIES = """
import re, torch
torch.zeros(1, device="cuda")
paths = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
for stem in ("cudart", "cuda"):
    print(next(path for path in sorted(paths) if re.fullmatch(rf"lib(deepum_emu_)?{stem}(-[0-9a-f]+)?[.]so.*", path.rsplit("/", 1)[-1])))
print(torch.version.cuda.split(".")[0])
print(torch.cuda.device_count())
"""


class Program:
    def __init__(self, source, folder):
        text = source.read_text()
        self.name, self.binary = source.stem, folder / source.stem
        lines = re.findall(r"^//! (.*?): (.*)$", text, re.M)
        self.says, self.may_say = ([value for key, value in lines if key == wanted] for wanted in ("says", "may say"))
        special = dict(lines)
        self.gpus, self.preload, self.is_alone = int(special.get("gpus", 1)), special.get("preload"), "alone" in special

    def run(self, launcher, way):
        """How it ended, and what it printed and said; `launcher` is the command that runs a program with the shim."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("DEEPUM")}
        library = str(self.binary.parent / self.preload) if self.preload else ""
        if WAYS[way] is None:
            command = launcher(False)
        else:
            command, env = launcher(True), env | WAYS[way]
        if library:
            command = [*command, "sh", "-c", f'LD_PRELOAD="${{LD_PRELOAD:+$LD_PRELOAD:}}{library}" exec "$0"']
        try:
            done = subprocess.run([*command, self.binary], env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
            return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        except subprocess.TimeoutExpired as late:
            return f"did not end within {SECONDS} s", (late.stdout or b"").decode(errors="replace"), (late.stderr or b"").decode(errors="replace")

    def problems(self, launcher):
        """What differs, one line each; and what each way did."""
        outcomes = {way: self.run(launcher, way) for way in WAYS}
        code, out, err = outcomes["without"]
        if not out or code == 90 or isinstance(code, str) or "data_mode_kernels" in err:
            return [f"no truth: ends with {code}: {err.strip()[-200:]}"], outcomes
        found = []
        for way in ("dormant", "tight"):
            code_now, out_now, err_now = outcomes[way]
            ours = [line for line in err_now.splitlines(keepends=True) if line.startswith("deepum: ")]
            for text in self.says:
                if sum(text in line for line in ours) != 1:
                    found.append(f"{way}: the shim is to say {text!r}, once")
            known = {line for line in ours if any(text in line for text in self.says + self.may_say)}
            rest = "".join(line for line in err_now.splitlines(keepends=True) if line not in known)
            if code_now != code:
                found.append(f"{way}: ends with {code_now}, not {code}")
            for what, have, truth in (("prints", out_now, out), ("says", rest, err)):
                if have != truth:
                    pairs = list(zip(truth.splitlines() + [None], have.splitlines() + [None]))
                    at = next((i for i, (a, b) in enumerate(pairs) if a != b), 0)
                    found.append(f"{way}: {what}, line {at + 1}: {pairs[at][1]!r}, not {pairs[at][0]!r}")
        return found, outcomes


def compile_all(folder, cudart, cuda, version):
    """Every program, and every library that they open, in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, library in ((f"libcudart.so.{version}", cudart), ("libcuda.so.1", cuda)):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(library)
    kernels = PROGRAMS / "data_mode_kernels.c"

    def build(source):
        text = source.read_text()
        is_library = source.stem.startswith("lib")
        out = folder / (source.stem + ".so" if is_library else source.stem)
        more = ["-shared", "-fPIC"] if is_library else [kernels] if "runtime.h" in text else []
        libraries = ["-Wl,--as-needed", "-Wl,--allow-shlib-undefined", "-lm", f"-l:libcudart.so.{version}", "-l:libcuda.so.1", f"-Wl,-rpath,{folder}"]
        subprocess.run(["gcc", "-std=gnu17", "-O1", f"-DCUDA={version}", "-o", out, source, *more, f"-L{folder}", *libraries], check=True, capture_output=True)
        return None if is_library else Program(source, folder)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [program for program in pool.map(build, sorted(SAME.glob("*.c"))) if program]


def compare(programs, launcher, gpus, log, seconds):
    """Runs those that this machine has GPUs enough for, as long as there are seconds left; returns the problems of each, by its name."""
    end = time.monotonic() + seconds
    results = {}

    def one(program):
        begun = time.monotonic()
        problems, outcomes = program.problems(launcher) if begun < end else (["no time was left for it"], {})
        with lock, open(log, "a") as out:
            print(f"== {program.name}, {time.monotonic() - begun:.1f} s: {'; '.join(problems) or 'the same'}", file=out)
            for way, (code, printed, said) in outcomes.items() if problems else ():
                print(f"-- {way}: ends with {code}\n{printed[-2000:]}-- stderr\n{said[-2000:]}", file=out)
            results[program.name] = problems

    pathlib.Path(log).unlink(missing_ok=True)
    lock = threading.Lock()
    able = [program for program in programs if program.gpus <= gpus]
    with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count())) as pool:
        list(pool.map(one, (program for program in able if not program.is_alone)))
    for program in able:
        if program.is_alone:
            one(program)
    return results

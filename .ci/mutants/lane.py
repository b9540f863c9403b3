"""One run of tests: copies of the programs with one mutant's number in them, in namespaces and cgroups of their own."""
import atexit, collections, json, os, pathlib, re, shutil, subprocess, threading, time

from tree import LINKED, PROGRAMS, ROOT, TREE, WORK

MARK = b"<the mutant that is on, u32>"
# As a mutant's number: the program records which places of mutants it comes by, in the file whose path stands behind the number.
RECORD = 2**32 - 1
PATH_BYTES, PLACES = 256, 2**16


class Lane:
    """Copies of the programs with one mutant's number in them, and a place in which they run."""

    def __init__(self, index):
        # Of this process alone: parts can run at the same time.
        self.directory = WORK / f"lane-{os.getpid()}-{index}"
        # The programs have a directory of their own, which is mounted where they were built: a build at the same time replaces nothing.
        (self.directory / "debug").mkdir(parents=True)
        atexit.register(shutil.rmtree, self.directory, ignore_errors=True)
        self.programs = json.loads((WORK / "programs.json").read_text())
        self.number = {}
        self.offsets = {}
        self.reached = self.directory / "reached"
        self.reached.write_bytes(bytes(PLACES))
        self.reached.chmod(0o666)
        self.groups = [directory / f"mutants-{os.getpid()}-{index}" for directory in own_groups()]

    def program(self, name, number):
        """The copy with this mutant on."""
        copy = self.directory / ("debug" if name in PROGRAMS else "") / name
        if name not in self.offsets:
            shutil.copy2(self.programs[name], copy)
            content = copy.read_bytes()
            self.offsets[name] = [match.end() for match in re.finditer(re.escape(MARK), content)]
            assert len(self.offsets[name]) <= 1 and (self.offsets[name] or name not in ("provost", "lib")), name
        if self.number.get(name) != number:
            for offset in self.offsets[name]:
                with copy.open("r+b") as file:
                    file.seek(offset)
                    file.write(number.to_bytes(4, "little") + str(self.reached).encode().ljust(PATH_BYTES))
            self.number[name] = number
        return copy

    def record(self, step, test, deadline):
        """(verdict, seconds, the places that a test comes by)"""
        self.reached.write_bytes(bytes(PLACES))
        verdict, _, seconds = self.run(RECORD, step, deadline, test)
        return verdict, seconds, [place for place, byte in enumerate(self.reached.read_bytes()) if byte]

    def tests(self, step):
        """The names of a step's tests; those of `lib` run together, as one without a name."""
        suite, words = words_of(step)
        if suite == "lib":
            return [None]
        listed = subprocess.run([self.program(suite, 0), "--list", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        ignored = subprocess.run([self.program(suite, 0), "--list", "--ignored", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        names = lambda done: [line.removesuffix(": test") for line in done.stdout.splitlines() if line.endswith(": test")]
        return [name for name in names(listed) if suite == "runtime" or name not in names(ignored)]

    def run(self, number, step, deadline, exact=None):
        """(verdict, test, seconds): "passed", "failed" with the first test that did, or "deadline"."""
        suite, words = words_of(step)
        words = [exact, "--exact"] if exact else words
        # A test finds the programs where they were built; the mounts are seen by these tests alone.
        for name in PROGRAMS:
            self.program(name, number)
        copies = self.directory / "debug"
        tree = TREE if suite in LINKED else ROOT
        script = "".join(f"echo 0 > '{group}/cgroup.procs'\n" for group in self.groups)
        for name in ("provost", "unchanged"):
            if name in self.programs:
                script += f"mount --bind '{copies}' '{pathlib.Path(self.programs[name]).parent}' || exit 98\n"
        script += f"cd '{tree}' && '{self.program(suite, number)}' \"$@\"\nexit $?\n"
        for group in self.groups:
            group.mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if name not in ("CI", "CARGO_TARGET_DIR")}
        environment.update(CARGO_MANIFEST_DIR=str(tree), RUST_BACKTRACE="0", TMPDIR="/tmp")
        start = time.monotonic()
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private", "sh", "-c", script, "sh", *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
        late = threading.Timer(deadline, process.kill)
        late.start()
        failed, tail = None, collections.deque(maxlen=60)
        for line in process.stdout:
            line = line.decode(errors="replace")
            tail.append(line)
            match = re.match(r"test (.+?)(?: - should panic)? \.\.\. FAILED", line)
            if match:
                failed = match[1]
                process.kill()
                break
        status = process.wait()
        was_late = not late.is_alive() and failed is None and status != 0
        late.cancel()
        process.stdout.close()
        self.clean()
        seconds = time.monotonic() - start
        if was_late:
            return "deadline", None, seconds
        if failed is None and status != 0:
            failed = "(the whole)"
        (self.directory / "last.log").write_text("".join(tail))
        return ("failed", failed, seconds) if failed else ("passed", None, seconds)

    def clean(self):
        """Removes the cgroups, whose processes have ended with the pid namespace."""
        for group in self.groups:
            for _ in range(100):
                below = [pathlib.Path(at) for at, _, _ in os.walk(group, topdown=False)]
                for directory in below:
                    try:
                        directory.rmdir()
                    except OSError:
                        pass
                if not group.exists():
                    break
                time.sleep(0.05)


def words_of(step):
    """A step's suite and filters."""
    suite, _, filters = step.partition(":")
    return suite, filters.replace(",", " ").split()


def own_groups():
    """This process's directories in the hierarchies that tests use."""
    mounts = [line.split(" - ") for line in open("/proc/self/mountinfo").read().splitlines()]
    found = []
    for line in open("/proc/self/cgroup").read().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers.startswith("name=") or "cpuset" in controllers:
            continue
        for before, after in mounts:
            kind, _, options = after.split(" ")[:3]
            root, at = before.split(" ")[3:5]
            if (kind == "cgroup2") if not controllers else (kind == "cgroup" and set(controllers.split(",")) <= set(options.split(","))):
                inside = path.removeprefix(root.rstrip("/"))
                found.append(pathlib.Path(at) / inside.lstrip("/"))
                break
    return found

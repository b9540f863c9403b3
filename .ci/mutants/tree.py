"""The build of all mutants: the list of cargo-mutants, a copy of the tree with every mutant behind a guard, and the programs."""
import collections, json, os, pathlib, shutil, subprocess, sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "target" / "mutants"
ORIGIN, TREE, BUILD, GUARD = WORK / "origin", WORK / "tree", WORK / "build", WORK / "guard"
# The programs under test, which lie in one directory: `provost` looks for `provost-sandbox` next to itself.
PROGRAMS = ("provost", "provost-sandbox", "provost-shell")
# Suites that run a library in their own process, and so are built with the mutants. The others run the programs alone, and
# are those of the checkout: a test that is written for a mutant runs without a build of the mutants.
MEMBERS = ("base", "conformance", "frontends", "gateway", "journal", "policy", "sandbox")
LINKED = ("lib", *(f"lib-{member}" for member in MEMBERS), "kernel", "runtime", "gateway")


def build(files):
    WORK.mkdir(parents=True, exist_ok=True)
    listed, excluded = WORK / "mutants.json", WORK / "excluded"
    if files:
        chosen = [word for file in files for word in ("--file", file)]
        listed.write_bytes(subprocess.check_output(["cargo", "mutants", "--list", "--json", *chosen], cwd=ROOT))
        copy_tree()
    subprocess.check_call(["cargo", "build", "--locked", "--quiet", "--release", "--target-dir", GUARD], cwd=HERE / "guard")
    names = {number: mutant["name"] for number, mutant in enumerate(json.loads(listed.read_text()), 1)}
    paths = sorted({mutant["file"] for mutant in json.loads(listed.read_text())})
    for round in range(1, 30):
        for path in paths:
            shutil.copyfile(ORIGIN / path, TREE / path)
        subprocess.check_call([GUARD / "release" / "guard", listed, TREE, excluded])
        culprits = does_not_compile()
        for message in sorted(set(culprits.values())):
            print(f"    {list(culprits.values()).count(message)} {message}", flush=True)
        if not culprits:
            break
        print(f"round {round}: {len(culprits)} do not compile behind a guard", flush=True)
        with excluded.open("a") as file:
            file.writelines(f"{names[number]}\n" for number in sorted(culprits))
    else:
        sys.exit("it does not compile after 30 rounds")
    suites = {step.partition(":")[0] for step in steps_of(paths)}
    (WORK / "programs.json").unlink(missing_ok=True)
    build_programs(sorted(suites))
    for known in ("verdicts.jsonl", "reached.jsonl"):
        (WORK / known).unlink(missing_ok=True)


def build_programs(suites):
    """The programs and the linked suites with the mutants, the other suites without."""
    linked, others = [name for name in suites if name in LINKED], [name for name in suites if name not in LINKED]
    words = lambda names: [word for name in names for word in (["--lib"] if name.startswith("lib") else ["--test", name])]
    bins = [word for name in PROGRAMS for word in ("--bin", name)]
    found = programs(["build", *bins], TREE) | programs(["test", "--no-run", *words(linked)], TREE)
    if others:
        unchanged = programs(["test", "--no-run", *words(others)], ROOT)
        found |= {name: unchanged[name] for name in others}
        found["unchanged"] = unchanged["provost"]
    known = WORK / "programs.json"
    before = json.loads(known.read_text()) if known.exists() else {}
    known.write_text(json.dumps(before | found))


def copy_tree():
    for tree in (ORIGIN, TREE):
        shutil.rmtree(tree, ignore_errors=True)
        for name in subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT).decode().split("\0"):
            if name and ((ROOT / name).is_file() or (ROOT / name).is_symlink()):
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    base = TREE / "src" / "base"
    shutil.copyfile(HERE / "mutant.rs", base / "mutant.rs")
    shutil.copyfile(HERE / "reached.rs", base / "sys" / "reached.rs")
    # Every member finds it at its own root.
    for member in (".", *MEMBERS):
        library = TREE / "src" / member / "lib.rs"
        mutant = "pub mod mutant;" if member == "base" else "use provost_base::mutant;"
        library.write_text("#![allow(warnings)]\n" + library.read_text() + f"\n{mutant}\n")
    system = base / "sys" / "mod.rs"
    system.write_text(system.read_text() + "\npub mod reached;\n")


def cargo(arguments, tree):
    target = {} if tree == ROOT else {"CARGO_TARGET_DIR": str(BUILD)}
    environment = dict(os.environ, CARGO_PROFILE_DEV_DEBUG="0", **target)
    command = ["cargo", arguments[0], "--locked", "--message-format=json", *arguments[1:]]
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def does_not_compile():
    """The numbers of the mutants that the compiler complains about, with its complaint."""
    done, messages = cargo(["check", "--workspace", "--lib"], TREE)
    if done.returncode == 0:
        return {}
    of_file = collections.defaultdict(list)
    for mutant in json.loads((TREE / "guarded.json").read_text()):
        if mutant["bytes"]:
            of_file[mutant["file"]].append((*mutant["bytes"], mutant["number"]))
    culprits = {}
    for message in (m["message"] for m in messages if m["reason"] == "compiler-message"):
        if message["level"] != "error":
            continue
        spans = sorted(message["spans"], key=lambda span: not span["is_primary"])
        spans += [span["expansion"]["span"] for span in spans if span["expansion"]]
        if not spans:
            continue
        for span in spans:
            start, end = span["byte_start"], span["byte_end"]
            around = [m for m in of_file[span["file_name"]] if m[0] <= start < m[1] or m[0] < end <= m[1] or start <= m[0] < end]
            if around:
                # An error about a whole expression is that of the nearest one in it.
                culprit = min(around, key=lambda m: abs(m[0] - start) + abs(m[1] - end))[2]
                culprits[culprit] = (message["code"] or {}).get("code") or message["message"]
                break
        else:
            # About the rest of a function that a mutant makes return early.
            start, file = spans[0]["byte_start"], spans[0]["file_name"]
            before = [m for m in of_file[file] if m[0] < start]
            for _, _, culprit in sorted(before)[-1:]:
                culprits[culprit] = "what follows it: " + ((message["code"] or {}).get("code") or message["message"])
    if not culprits:
        sys.exit(done.stderr + "\n".join(m["message"]["rendered"] for m in messages if m["reason"] == "compiler-message" and m["message"]["level"] == "error"))
    return culprits


def programs(arguments, tree):
    done, messages = cargo(arguments, tree)
    if done.returncode != 0:
        sys.exit(done.stderr)
    found = {}
    for message in messages:
        if message["reason"] == "compiler-artifact" and message.get("executable"):
            target = message["target"]
            if message["profile"]["test"] or target["kind"] == ["test"]:
                found[library(target["name"]) if target["kind"] == ["lib"] else target["name"]] = message["executable"]
            elif target["kind"] == ["bin"] and target["name"] in PROGRAMS:
                found[target["name"]] = message["executable"]
    return found


def library(name):
    """The step of a member's unit tests."""
    return "lib" if name == "provost" else name.replace("provost_", "lib-")


def suites():
    """Path prefix to its steps, with the named lists of steps put in."""
    rows = [line.split() for line in (HERE / "suites").read_text().splitlines() if line and line[0] != "#"]
    lists = {row[0]: row[1:] for row in rows if row[0][0] == "@"}
    spread = lambda steps: [one for step in steps for one in lists.get(step, [step])]
    return {row[0]: spread(row[1:]) for row in rows if row[0][0] != "@"}


def steps_of(paths):
    """The steps that can notice a mutant in one of these files, each once."""
    rows = suites()
    fitting = ([path for path in rows if file.startswith(path)] for file in paths)
    return list(dict.fromkeys(step for fits in fitting if fits for step in rows[max(fits, key=len)]))

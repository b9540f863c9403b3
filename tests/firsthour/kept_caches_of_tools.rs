//! Kept caches with the real tools: what one session has fetched, the next one builds and installs from without asking anybody.

use std::{fs, process::Output};

use crate::firsthour::{
    caches::{Home, text},
    person::Person,
    toolchains,
    walk::shown,
};

/// A tool, and how it shows that its cache was there.
struct Tool {
    /// As a profile names its cache.
    cache: &'static str,
    /// Gives it to the person, where it is not the system's. False, and said: it cannot be had.
    install: fn(&Person) -> bool,
    /// Whether it and its registry are there, outside. It fetches nothing that the script does: own caches are seen inside.
    probe: &'static str,
    /// What a session types. `$1` is `fetch` where it may ask the registry, and `cached` where it has to do without.
    script: &'static str,
    /// What it prints at the end if all went well.
    says: &'static str,
}

const NPM: Tool = Tool {
    cache: "npm",
    install: |_| true,
    probe: "npm view is-number@7.0.0 version",
    script: "[ $1 = fetch ] || offline=--offline
        rm -rf node_modules package.json && npm init -y >/dev/null &&
        npm install --no-audit --no-fund $offline is-number@7.0.0 >&2 && node -p 'require(\"is-number\")(7)'",
    says: "true",
};

const CARGO: Tool = Tool {
    cache: "cargo",
    install: toolchains::rustup,
    probe: "cargo info -q hex@0.4.3",
    script: "[ $1 = fetch ] || offline=--offline
        rm -rf made && cargo init -q --vcs none --name made made && cd made && echo 'fnv = \"=1.0.7\"' >> Cargo.toml &&
        echo 'fn main() { println!(\"{}\", fnv::FnvHashSet::<u8>::default().len()) }' > src/main.rs &&
        cargo run -q $offline",
    says: "0",
};

/// pip asks the index at every install, and a registry may forbid to keep its files; what is kept in any case is the wheel that pip
/// itself has built.
const PIP: Tool = Tool {
    cache: "pip",
    install: |_| true,
    probe: "PIP_FIND_LINKS= python3 -m pip download -q --no-deps -d probe idna==3.7 && rm -r probe",
    script: r#"rm -rf made && python3 -m venv made || exit 1
        [ $1 = fetch ] || made/bin/pip cache list | grep docopt >&2 || exit 1
        made/bin/pip install --use-pep517 docopt==0.6.2 > log; cat log >&2
        if grep -q 'Using cached docopt-0.6.2' log; then from=cached; else from=fetch; fi
        [ $1 = $from ] && made/bin/python -c 'import docopt; print(docopt.__version__)'"#,
    says: "0.6.2",
};

/// Its module comes from a directory: `GOPROXY` takes a `file` URL.
const GO: Tool = Tool {
    cache: "go",
    install: |_| true,
    probe: "go version",
    script: r#"export GOSUMDB=off GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPROXY=off
        rm -rf proxy made && mkdir -p made proxy && cd made || exit 1
        if [ $1 = fetch ]; then
            at=../proxy/example.test/answer/@v && mkdir -p $at && echo v1.0.0 > $at/list &&
            echo '{"Version":"v1.0.0"}' > $at/v1.0.0.info && echo 'module example.test/answer' > $at/v1.0.0.mod &&
            python3 -c "$WRITE_ZIP" $at/v1.0.0.zip && GOPROXY=file://$(realpath ../proxy) || exit 1
        fi
        printf 'package main\nimport "example.test/answer"\nfunc main() { println(answer.Get()) }\n' > main.go
        go mod init example.test/made && go mod edit -require example.test/answer@v1.0.0 && go run . 2>&1"#,
    says: "42",
};

/// Writes the module, as a proxy serves it.
const WRITE_ZIP: &str = "import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as made:
    made.writestr('example.test/answer@v1.0.0/go.mod', 'module example.test/answer\\n')
    made.writestr('example.test/answer@v1.0.0/answer.go', 'package answer\\nfunc Get() int { return 42 }\\n')";

fn keeps(tool: &Tool) {
    let Some(person) = Person::ordinary().filter(tool.install) else { return };
    let home = Home::with_profile(
        person,
        &format!("caches = [\"{0}\"]\nkept_caches = {{ names = [\"{0}\"] }}", tool.cache),
    );
    let probed = home.person.outside(tool.probe, &home.work);
    if !probed.status.success() {
        println!("SKIPPED: outside, the tool or its registry does not work: {}", shown(&probed));
        assert!(std::env::var("CI").is_err(), "CI must have {} and its registry", tool.cache);
        return;
    }
    // Registries may be mirrors at private addresses.
    let policy = home.policies.join("default.toml");
    let shipped = fs::read_to_string(&policy).expect("it is there");
    let offered = shipped
        .replace("[\"none\", \"proxy\"]", "[\"none\", \"proxy\", \"host\"]")
        .replace("tmp_bytes = 8_388_608", "tmp_bytes = 1_073_741_824");
    fs::write(&policy, offered).expect("it is ours");
    let session = |what: &str| -> Output {
        let policies = home.policies.to_str().expect("text");
        let script = format!("set -- {what}; WRITE_ZIP=$(cat <<'END'\n{WRITE_ZIP}\nEND\n)\n{}", tool.script);
        home.run(&["--policies", policies, "--network", "host"], &script)
    };
    let ended_well = |done: &Output| {
        done.status.success() && text(&done.stdout).lines().last().is_some_and(|line| line == tool.says)
    };
    let before = session("cached");
    assert!(!ended_well(&before), "nothing is there before: {}", shown(&before));
    let fetched = session("fetch");
    assert!(ended_well(&fetched), "{}", shown(&fetched));
    let again = session("cached");
    assert!(ended_well(&again), "{}", shown(&again));
}

#[test]
#[ignore = "long: fetches packages from npm"]
fn what_npm_has_fetched_is_there_for_the_next_session() {
    keeps(&NPM);
}

#[test]
#[ignore = "long: fetches crates"]
fn what_cargo_has_fetched_is_there_for_the_next_session() {
    keeps(&CARGO);
}

#[test]
#[ignore = "long: fetches packages from PyPI"]
fn what_pip_has_fetched_is_there_for_the_next_session() {
    keeps(&PIP);
}

#[test]
#[ignore = "long: builds with Go"]
fn what_go_has_fetched_and_built_is_there_for_the_next_session() {
    keeps(&GO);
}

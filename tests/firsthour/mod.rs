//! The first hour: what a developer types in a repository of node, of Python and of Rust, with the tools and the registries as they
//! are. Each line runs outside and through `provost run`, and must end alike: as root, and as an ordinary user.
//!
//! Each walk fetches packages, so that `cargo test` leaves it out. Where outside the registry does not answer, that is said.

mod as_outside;
mod caches;
mod every_front_end;
mod front_ends;
mod kept_caches;
mod kept_caches_of_tools;
mod logins;
mod no_network;
mod person;
mod signing;
mod toolchains;
mod unblocked;
mod walk;

use crate::acp::shim_peer as acp_peer;
use crate::clients::libraries;
use crate::exec_server::peer;
use crate::mcp::peer as mcp_peer;

use person::Person;
use walk::{Line, Network, Walk};

use Line::{Ends, Prints};

/// What everybody types first.
const GIT: [Line; 5] = [
    Ends("git init -q -b main ."),
    Ends("git status"),
    Ends("git diff --exit-code"),
    Ends("git log"),
    Ends("git rev-parse --verify nothing"),
];

/// And what they type last.
const COMMIT: [Line; 5] = [
    Ends("git add -A"),
    Ends("git commit -q -m first"),
    Prints("git log --format='%an <%ae> %s'"),
    Prints("git status --porcelain"),
    Ends("git push origin main"),
];

const NODE: [Line; 16] = [
    Ends("printf 'node_modules\\n' > .gitignore"),
    Ends("npm init -y"),
    Ends("npm test"),
    Ends(
        "npm pkg set scripts.test='node --test' scripts.build='node build.js' scripts.start='node index.js'",
    ),
    Ends("printf 'const n = require(\"is-number\"); console.log(n(3), n(\"x\"));' > index.js"),
    Ends("npm start"),
    Ends("npm install --no-audit --no-fund is-number@7.0.0"),
    Prints("npm start --silent"),
    Ends("printf 'const t = require(\"node:test\"); t(\"adds\", () => {});' > a.test.js && npm test"),
    Ends("printf 'process.exit(3)' > build.js; npm run build"),
    Prints("node -e 'console.log(Object.keys(require(\"./package.json\").dependencies))'"),
    Ends("npm ci --no-audit --no-fund"),
    Ends("npx --no-install nothing-of-this-name"),
    Ends("npm run nothing"),
    Ends("npm install --no-audit --no-fund @provost-nobody/there-is-no-such-package"),
    Ends("npm ls"),
];

const PYTHON: [Line; 13] = [
    Ends("printf '.venv\\n__pycache__\\n' > .gitignore"),
    Ends("python3 -m venv .venv"),
    Ends(".venv/bin/python -c 'import six'"),
    Ends(".venv/bin/pip install -q six==1.16.0"),
    Prints(".venv/bin/python -c 'import six; print(six.__version__)'"),
    Ends("printf 'import unittest\\nclass A(unittest.TestCase):\\n  def test_a(self): pass\\n' > test_a.py"),
    Ends(". .venv/bin/activate && python -m unittest -q"),
    Ends("printf 'raise SystemExit(3)\\n' > tool.py; python3 tool.py"),
    Ends(".venv/bin/pip install -q provost-nobody-there-is-no-such-package"),
    Prints(".venv/bin/pip freeze"),
    Ends("python3 -m compileall -q ."),
    Ends("timeout 0.2 python3 -c 'import time; time.sleep(60)'"),
    Ends("python3 -m nothing_of_this_name"),
];

const RUST: [Line; 13] = [
    Ends("cargo init -q --vcs none --name hello ."),
    Ends("printf 'target\\n' > .gitignore"),
    Prints("cargo run -q"),
    Ends("cargo add -q itoa@1.0.11"),
    Ends("printf 'fn main() { println!(\"{}\", itoa::Buffer::new().format(42)); }' > src/main.rs"),
    Prints("cargo run -q"),
    Ends("cargo test -q"),
    Ends("cargo build -q --release"),
    Prints("./target/release/hello"),
    Ends("cargo build -q --bin nothing"),
    Ends("cargo add -q provost-nobody-there-is-no-such-crate"),
    Ends("printf 'fn main() { std::process::exit(7) }' > src/main.rs; cargo run -q"),
    Ends("cargo nothing-of-this-name"),
];

fn walk(person: Option<Person>, name: &str, probe: &str, lines: &[Line]) {
    let Some(person) = person else { return };
    let all = [&GIT[..], lines, &COMMIT].concat();
    Walk::new(&person, name, Network::Host).with_probe(probe).take(&all);
}

fn walk_node(person: Option<Person>) {
    walk(person, "node", "npm view is-number version", &NODE);
}

fn walk_python(person: Option<Person>) {
    let probe = "python3 -m venv probe && probe/bin/pip download -q --no-deps six==1.16.0";
    walk(person, "python", probe, &PYTHON);
}

fn walk_rust(person: Option<Person>) {
    let Some(person) = person else { return };
    if toolchains::rustup(&person) {
        walk(Some(person), "rust", "cargo search -q --limit 1 itoa || cargo info -q itoa", &RUST);
    }
}

#[test]
#[ignore = "long: fetches packages from npm"]
fn a_node_repository_is_worked_in_as_an_ordinary_user() {
    walk_node(Person::ordinary());
}

#[test]
#[ignore = "long: fetches packages from PyPI"]
fn a_python_repository_is_worked_in_as_an_ordinary_user() {
    walk_python(Person::ordinary());
}

#[test]
#[ignore = "long: fetches packages from crates.io"]
fn a_rust_repository_is_worked_in_as_an_ordinary_user() {
    walk_rust(Person::ordinary());
}

/// Without a network, and with nothing that has to be fetched: in every run.
#[test]
fn what_needs_no_registry_ends_as_outside() {
    for person in [Person::root(), Person::ordinary()].into_iter().flatten() {
        let lines = [
            Ends("cd src && git status --porcelain"),
            Ends("printf 'int main(void) { return 4; }' > main.c && cc -o main main.c && ./main"),
            Prints("seq 5 | sort -r | head -n 2"),
            Ends("git stash list && git branch side && git switch -q side"),
            Ends("exit 3"),
            Ends("kill -TERM $$"),
            Ends("no-such-program"),
            Ends("cat /no/such/file"),
        ];
        let all = [
            &GIT[..4],
            &[Ends("mkdir src && touch src/a && git add -A && git commit -q -m a")],
            &lines,
            &COMMIT,
        ];
        Walk::new(&person, "plain", Network::None).take(&all.concat());
    }
}

/// Run by `.ci/long` alone.
mod nightly {
    use super::*;

    #[test]
    #[ignore = "long: fetches packages from npm; .ci/long firsthour runs it"]
    fn a_node_repository_is_worked_in_as_root() {
        walk_node(Person::root());
    }

    #[test]
    #[ignore = "long: fetches packages from PyPI; .ci/long firsthour runs it"]
    fn a_python_repository_is_worked_in_as_root() {
        walk_python(Person::root());
    }

    #[test]
    #[ignore = "long: fetches packages from crates.io; .ci/long firsthour runs it"]
    fn a_rust_repository_is_worked_in_as_root() {
        walk_rust(Person::root());
    }

    #[test]
    #[ignore = "long: installs npm and uv as version managers do; .ci/long firsthour runs it"]
    fn a_version_of_node_and_uv_in_the_home_are_used() {
        for person in [Person::root(), Person::ordinary()].into_iter().flatten() {
            if !toolchains::nvm(&person) || !toolchains::uv(&person) {
                return;
            }
            let lines = [
                Prints("node -p process.execPath"),
                Prints("command -v npm"),
                Ends("npm init -y && npm install --no-audit --no-fund is-number@7.0.0"),
                Prints("command -v uv"),
                Ends("uv venv -q .venv && uv pip install -q six==1.16.0"),
                Prints(".venv/bin/python -c 'import six; print(six.__version__)'"),
                // Outside it is made, and has the name of the user's id there.
                Ends("touch \"$(dirname \"$(command -v uv)\")/new-$(id -u)\" && false"),
            ];
            Walk::new(&person, "homes", Network::Host).take(&lines);
            let programs =
                std::fs::read_dir(person.home().join(".local/bin")).expect("uv is there").flatten();
            let names = programs.map(|program| program.file_name().to_string_lossy().into_owned());
            let new: Vec<_> = names.filter(|name| name.starts_with("new-")).collect();
            assert_eq!(
                new,
                [format!("new-{}", person.id())],
                "inside, the home's programs cannot be changed"
            );
        }
    }

    #[test]
    #[ignore = "long: installs mise and a tool by it; .ci/long firsthour runs it"]
    fn a_tool_that_mise_has_installed_is_used() {
        for person in [Person::root(), Person::ordinary()].into_iter().flatten() {
            if !toolchains::mise(&person) {
                return;
            }
            let lines = [Prints("cowsay hello"), Prints("cowsay -l"), Ends("cowsay")];
            Walk::new(&person, "mise", Network::Host).take(&lines);
        }
    }
}
